// Who knows whom: each room is given the rooms that it calls.
#include "controller/core/rooms.h"

namespace opus::controller {

Rooms::Rooms(World& world)
    : node_sessions(world, *this),
      registration(world, *this),
      creation(world, *this),
      joined(world, *this),
      launches(world, *this),
      gangs(world, *this),
      schedule(world, *this),
      change_sets(world, *this),
      switches(world, *this),
      grants(world, *this),
      jobs(world, *this),
      turns(world, *this),
      hidden(world, *this),
      runs(world, *this),
      cuts(world, *this),
      suspension(world, *this),
      holds(world, *this),
      adoption(world, *this),
      fences(world, *this),
      requests(world, *this),
      explain(world, *this) {}

NodeSessions::NodeSessions(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      grants_(rooms.grants),
      runs_(rooms.runs),
      holds_(rooms.holds),
      adoption_(rooms.adoption),
      registration_(rooms.registration),
      creation_(rooms.creation) {}

Registration::Registration(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      jobs_(rooms.jobs),
      runs_(rooms.runs),
      cuts_(rooms.cuts),
      suspension_(rooms.suspension),
      holds_(rooms.holds),
      adoption_(rooms.adoption),
      creation_(rooms.creation),
      joined_(rooms.joined) {}

Creation::Creation(World& world, Rooms& rooms) : Room(world), registration_(rooms.registration) {}

Joined::Joined(World& world, Rooms& rooms) : Room(world), registration_(rooms.registration) {}

Launches::Launches(World& world, Rooms& rooms)
    : Room(world),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      grants_(rooms.grants),
      jobs_(rooms.jobs),
      runs_(rooms.runs),
      cuts_(rooms.cuts),
      suspension_(rooms.suspension),
      holds_(rooms.holds),
      adoption_(rooms.adoption),
      registration_(rooms.registration),
      node_sessions_(rooms.node_sessions) {}

Gangs::Gangs(World& world, Rooms& rooms)
    : Room(world), launches_(rooms.launches), schedule_(rooms.schedule), holds_(rooms.holds) {}

Schedule::Schedule(World& world, Rooms& rooms)
    : Room(world),
      watchers_(world.fabric.gpus.size()),
      gangs_(rooms.gangs),
      change_sets_(rooms.change_sets),
      grants_(rooms.grants),
      fences_(rooms.fences),
      turns_(rooms.turns),
      runs_(rooms.runs),
      cuts_(rooms.cuts),
      suspension_(rooms.suspension),
      holds_(rooms.holds) {}

ChangeSets::ChangeSets(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      grants_(rooms.grants),
      switches_(rooms.switches),
      fences_(rooms.fences),
      turns_(rooms.turns),
      hidden_(rooms.hidden) {}

Switches::Switches(World& world, Rooms& rooms)
    : Room(world),
      schedule_(rooms.schedule),
      change_sets_(rooms.change_sets),
      fences_(rooms.fences),
      suspension_(rooms.suspension),
      adoption_(rooms.adoption) {}

Grants::Grants(World& world, Rooms& rooms)
    : Room(world),
      next_((world.options.epoch << 20) + 1),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      change_sets_(rooms.change_sets),
      turns_(rooms.turns),
      hidden_(rooms.hidden),
      runs_(rooms.runs) {}

Jobs::Jobs(World& world, Rooms& rooms)
    : Room(world), launches_(rooms.launches), turns_(rooms.turns), runs_(rooms.runs) {}

Turns::Turns(World& world, Rooms& rooms)
    : Room(world),
      course_at_(world.fabric.ports.size()),
      users_(world.fabric.ports.size()),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      change_sets_(rooms.change_sets),
      jobs_(rooms.jobs),
      hidden_(rooms.hidden),
      runs_(rooms.runs),
      suspension_(rooms.suspension) {}

Hidden::Hidden(World& world, Rooms& rooms) : Room(world), made_(world.fabric.ports.size()), gangs_(rooms.gangs) {}

Runs::Runs(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      fences_(rooms.fences),
      turns_(rooms.turns),
      cuts_(rooms.cuts),
      adoption_(rooms.adoption),
      node_sessions_(rooms.node_sessions) {}

Cuts::Cuts(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      jobs_(rooms.jobs),
      runs_(rooms.runs),
      suspension_(rooms.suspension) {}

Suspension::Suspension(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      runs_(rooms.runs),
      explain_(rooms.explain) {}

Holds::Holds(World& world, Rooms& rooms)
    : Room(world), launches_(rooms.launches), gangs_(rooms.gangs), registration_(rooms.registration), explain_(rooms.explain) {}

Adoption::Adoption(World& world, Rooms& rooms)
    : Room(world),
      launches_(rooms.launches),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      runs_(rooms.runs),
      suspension_(rooms.suspension),
      node_sessions_(rooms.node_sessions) {}

Fences::Fences(World& world, Rooms& rooms)
    : Room(world),
      gangs_(rooms.gangs),
      schedule_(rooms.schedule),
      change_sets_(rooms.change_sets),
      runs_(rooms.runs),
      holds_(rooms.holds),
      jobs_(rooms.jobs) {}

Requests::Requests(World& world, Rooms& rooms)
    : Room(world), change_sets_(rooms.change_sets), suspension_(rooms.suspension) {}

Explain::Explain(World& world, Rooms& rooms) : Room(world), gangs_(rooms.gangs) {}

}  // namespace opus::controller
