/* The control protocol (docs/protocol.md), for exhaustive checking with spin: docs/model/README.md.
 *
 * A scenario (scenarios.py) is a program: launches of ranks, the keys at which they meet, the circuits that keys need,
 * as bit masks in tables.h: AFTER (launches of the rank that must have finished before the gate is reached), TURN
 * (those behind which NCCL itself puts it), KEYS, NEEDS, MEMBERS, LIGHT (pairs that a launch, a key needs), TRANSFER (a key that a group brings), CIRCUITS (of a pair; any
 * will do), CLASH (circuits on the same ports), RUN (what
 * the members of a key expect to follow it), DATA, SENT, SENT_IN (keys, members and circuits as the bytes know them). Events are Promela processes, what the controller decides is C below.
 *
 * Abstract: a transfer is one event, possible when all members of its key have started and its circuits carry light
 * (the transport retries for ever, so a suspended launch only waits). Messages are first in, first out for each rank,
 * any delay. No time: T_break or a quantum may pass at any moment, a switch takes any time.
 *
 * Checked: a launch starts only in the light (I1), no circuit moves under a launch in flight (I2), and under weak
 * fairness every program that ends without Opus ends with it (I4, I6, I7).
 */

#define ROOM 14
#define DEMAND 1    /* to the controller: launches */
#define DONE_ 2     /* launches */
#define RETURNED 3  /* launches in flight under the soft tokens that were revoked; those that have ended */
#define GRANT 4     /* to a rank: launches; keys of its run (soft) */
#define REVOKE 5    /* keys */
#define EXPIRED 6   /* to the controller: launches */

c_decl {
\#include "tables.h"
    /* Launch, as its rank sees it. */
    enum { IDLE, READY, STARTED, FINISHED };
    /* Launch, as the controller sees it. */
    enum { ABSENT, DEMANDED, IN_FLIGHT, SUSPENDED, DONE };
}

byte at_rank[NL];
byte at_controller[NL];
byte ticket[NL];            /* place in the line of those that wait, from 1; 0: none */
short finished, started;    /* launches, in truth */
short transferred;          /* data that has arrived */
short lit, moving;          /* circuits */
short reported;             /* launches that their rank has reported to the controller */
short soft[NR];             /* keys under a soft token, as the rank sees it */
short token[NR];            /* the same as the controller sees it */
short revoked[NR];          /* keys whose token is asked back; the answer is awaited */
short quantum;              /* circuits that whoever has them may keep a while */
short guessed;              /* circuits lit or on their way because of a speculation that nobody has used yet */
byte guesses[NK];           /* how often this key was speculated upon in vain */
#ifdef AHEAD
short ahead;                /* launches whose go is stored, and whose gates were not reached then */
short taken_back;           /* ... whose go was taken back, and whether they were reached is not known yet */
short ready_word;           /* their gates' ready, as memory has it */
short in_buffer;            /* ... as only the GPU has it */
short looked;               /* ... and they have looked at go */
short asked_back[NR];       /* keys of the REVOKE that is not answered yet */
#endif
byte broken;                /* switches that have failed and were not read back */
short unknown;              /* circuits on their way when their switch failed */
byte faults;
short late;                 /* circuits that a dead controller commanded, and a switch may still bring */
byte crashes;
byte heard = (1 << NR) - 1; /* ranks with a session: those whose snapshot this controller has */
bit down_ = 0;              /* no controller */
short expired;              /* launches whose hold time has run out */
short packets;              /* launches that have left for another network by themselves */
bit impatient;              /* the first gang in line has waited T_break while laggards passed it */
short aged;                 /* launches that have waited as long as a move takes since their gang was complete */
short victims;              /* launches in flight that the first gang in line could suspend */

bit in_the_dark, moved_under;   /* what must never be: I1, I2 */

short out_go[NR], out_soft[NR], out_revoke[NR];     /* what one look wants to send; zero between */

chan up[NR] = [ROOM] of { byte, short, short };
chan down[NR] = [ROOM] of { byte, short, short };

c_code {
\#define HAS(mask, i) ((mask) >> (i) & 1)
\#define EACH_LAUNCH(l) for (int l = 0; l < NL; ++l)
\#define EACH_KEY(k) for (int k = 0; k < NK; ++k)
\#define EACH_PAIR(p) for (int p = 0; p < NP; ++p)
\#define EACH_RANK(r) for (int r = 0; r < NR; ++r)

#ifdef QUANTUM
\#define QUANTUM_OF(circuits) now.quantum |= (circuits)
#else
\#define QUANTUM_OF(circuits)
#endif

    /* --- light --------------------------------------------------------------------------------------------------- */
    static int with(int circuits) {     /* all circuits on the ports of these, themselves apart */
        int out = 0;
        for (int c = 0; c < NC; ++c) if (HAS(circuits, c)) out |= CLASH[c];
        return out;
    }
    static int circuits_of(int pairs) {
        int out = 0;
        EACH_PAIR(p) if (HAS(pairs, p)) out |= CIRCUITS[p];
        return out;
    }
    static int not_in(int pairs, int circuits) {
        int out = 0;
        EACH_PAIR(p) if (HAS(pairs, p) && !(CIRCUITS[p] & circuits)) out |= 1 << p;
        return out;
    }
    static int dark(int pairs) { return not_in(pairs, now.lit); }

    /* --- the program ----------------------------------------------------------------------------------------- */
    static int gate_reached(int l) { return now.at_rank[l] == IDLE && !(AFTER[l] & ~now.finished); }
    static int can_transfer(int k) {
        EACH_LAUNCH(l) if (HAS(SENT[k], l) && (!HAS(now.started, l) || (TURN[l] & ~now.finished))) return 0;
        if ((SENT[k] & now.packets) && (SENT[k] & ~now.packets)) return 0;     /* on two networks they never meet */
        return !HAS(now.transferred, k) && (!dark(SENT_IN[k]) || (SENT[k] & now.packets));
    }
    static int has_all(int l) { return now.at_rank[l] == STARTED && !(DATA[l] & ~now.transferred); }
    static int over(void) { return !(MUST & ~now.finished); }

    /* --- what the controller decides --------------------------------------------------------------------------- */
    static int waits(int l) { return now.at_controller[l] == DEMANDED || now.at_controller[l] == SUSPENDED; }
    static int holds_token(int l, int k) { return HAS(now.token[RANK[l]], k); }

    /* Every member is ready, in flight, suspended or done; one that may start under its token counts. */
    static int full(int k) {
        EACH_LAUNCH(l) {
            if (!HAS(MEMBERS[k], l) || now.at_controller[l] != ABSENT) continue;
#ifndef TOKEN_IS_NOT_PRESENCE
            if (holds_token(l, k)) continue;
#endif
            return 0;
        }
        return 1;
    }
    /* What is suspended and waits for somebody who has not come has no use for circuits: not for a transfer that the other end is through with. */
    static int calls_for_circuits(int l, int k) {
        int done = 0, missing = 0;
        if (!full(k)) return 0;
        if (now.at_controller[l] != SUSPENDED || !TRANSFER[k]) return 1;
        EACH_LAUNCH(m) if (HAS(MEMBERS[k], m)) done |= m != l && now.at_controller[m] == DONE;
        EACH_KEY(n) if (HAS(KEYS[l], n)) EACH_LAUNCH(m) if (HAS(MEMBERS[n], m)) missing |= now.at_controller[m] == ABSENT;
        return !done || !missing;
    }
    static int full_key_of(int l) {
        EACH_KEY(k) if (HAS(KEYS[l], k) && calls_for_circuits(l, k)) return 1;
        return 0;
    }
    /* The component of waiting launches over full keys. */
    static int gang_of(int l) {
        int gang = 1 << l, before;
        do {
            before = gang;
            EACH_KEY(k) if ((MEMBERS[k] & gang) && full(k))
                EACH_LAUNCH(m) if (HAS(MEMBERS[k], m) && waits(m) && calls_for_circuits(m, k)) gang |= 1 << m;
        } while (gang != before);
        return gang;
    }
    static int needs_of(int gang) {
        int out = 0;
        EACH_LAUNCH(l) if (HAS(gang, l)) out |= NEEDS[l];
        return out;
    }
    /* Somebody of a key has started (or may have), and waits for this gang. */
    static int joins_flight(int gang) {
#ifndef NO_JOINERS
        EACH_KEY(k) if ((MEMBERS[k] & gang) && full(k))
            EACH_LAUNCH(l) if (HAS(MEMBERS[k], l) && !HAS(gang, l) && (now.at_controller[l] == IN_FLIGHT || holds_token(l, k))) return 1;
#endif
        return 0;
    }
    /* The rank still has a member to start, of a key that others have started on these circuits. */
    static int lags(int r, int circuits) {
        EACH_KEY(k) if (circuits_of(LIGHT[k]) & circuits) {
            int flying = 0, late = 0;
            EACH_LAUNCH(l) if (HAS(MEMBERS[k], l)) {
                flying |= now.at_controller[l] == IN_FLIGHT;
                late |= RANK[l] == r && (now.at_controller[l] == ABSENT || now.at_controller[l] == DEMANDED);
            }
            if (flying && late) return 1;
        }
        return 0;
    }
    static int has_laggard(int gang, int circuits) {
#ifndef NO_LAGGARDS
        if (now.impatient) return 0;
        EACH_LAUNCH(l) if (HAS(gang, l) && lags(RANK[l], circuits)) return 1;
#endif
        return 0;
    }
    static int half_started(int l) {
        EACH_KEY(k) if (HAS(KEYS[l], k))
            EACH_LAUNCH(m) if (HAS(MEMBERS[k], m) && (now.at_controller[m] == ABSENT || now.at_controller[m] == DEMANDED)) return 1;
        return 0;
    }
    /* It is half started, or common keys tie it to one that is. */
    static int may_never_end(int l) {
        int seen = 1 << l, before;
        do {
            before = seen;
            EACH_LAUNCH(m) if (HAS(seen, m)) {
                if (half_started(m)) return 1;
                EACH_KEY(k) if (HAS(KEYS[m], k)) EACH_LAUNCH(n)
                    if (HAS(MEMBERS[k], n) && (now.at_controller[n] == IN_FLIGHT || now.at_controller[n] == SUSPENDED)) seen |= 1 << n;
            }
        } while (seen != before);
        return 0;
    }
    /* Of a switch that has failed nothing is known. */
    static int unusable(void) {
        int out = 0;
        for (int w = 0; w < NS; ++w) if (HAS(now.broken, w)) out |= SWITCH[w];
        return out;
    }
    /* A key in flight or under a token holds its pairs, and so every circuit of theirs. */
    static int busy(void) {
        int held = 0, out = now.moving;
        EACH_LAUNCH(l) if (now.at_controller[l] == IN_FLIGHT) held |= NEEDS[l];
        EACH_RANK(r) EACH_KEY(k) if (HAS(now.token[r], k)) held |= LIGHT[k];
        out |= circuits_of(held) & now.lit;
#ifndef MOVE_BEFORE_REPORT
        EACH_RANK(r) if (!HAS(now.heard, r)) out |= PORTS[r];
#endif
        return out;
    }
    /* Circuits for these pairs: those that are there, one that can be had for each pair that has none, and every
     * further one on idle ports. What is in somebody's way is obstructed. -1: there are none. */
    static int plan(int pairs, int held, int reserved, int* obstructed) {
        int there = (now.lit | now.moving) & ~unusable(), use = 0;
        *obstructed = 0;
        EACH_PAIR(p) if (HAS(pairs, p)) use |= CIRCUITS[p] & there & -(CIRCUITS[p] & there);
        *obstructed |= use & reserved;
        EACH_PAIR(p) if (HAS(pairs, p) && !(CIRCUITS[p] & use)) {
            int best = -1, best_free = 0;
            for (int c = 0; c < NC; ++c) if (HAS(CIRCUITS[p] & ~unusable() & ~with(use), c)) {
                int free = !(CLASH[c] & held) && !HAS(reserved, c);
                if (best < 0 || free > best_free) best = c, best_free = free;
            }
            if (best < 0) return -1;
            use |= 1 << best;
            if (!best_free) *obstructed |= 1 << best;
        }
        EACH_PAIR(p) if (HAS(pairs, p) && !*obstructed)
            for (int c = 0; c < NC; ++c)
                if (HAS(CIRCUITS[p] & ~unusable() & ~with(use) & ~reserved, c) && !(CLASH[c] & held)) use |= 1 << c;
        return use;
    }
    static void give_tickets(void) {
        int last = 0;
        EACH_LAUNCH(l) if (now.ticket[l] > last) last = now.ticket[l];
        EACH_LAUNCH(l) if (waits(l) && !now.ticket[l] && full_key_of(l)) now.ticket[l] = ++last;
    }
    static void take_ticket(int l) {
        EACH_LAUNCH(m) if (now.ticket[m] > now.ticket[l] && now.ticket[l]) --now.ticket[m];
        now.ticket[l] = 0;
        now.aged &= ~(1 << l);
    }
    static int holds_anyone(int k) {
        EACH_RANK(r) if (HAS(now.token[r], k)) return 1;
        return 0;
    }
    /* Who is told of a key; one that never comes is expected by all. */
    static int ranks_of(int k, int otherwise) {
        int out = 0;
        EACH_LAUNCH(l) if (HAS(MEMBERS[k], l)) out |= 1 << RANK[l];
        return out ? out : otherwise;
    }
    static void give_tokens(int k, int otherwise) {
        EACH_RANK(r) if (HAS(ranks_of(k, otherwise), r)) {
            now.token[r] |= 1 << k;
            now.out_soft[r] |= 1 << k;
        }
    }
    static void grant(int gang, int with_run) {
        int need = needs_of(gang), ranks = 0;
        now.guessed &= ~circuits_of(need);
        EACH_LAUNCH(l) if (HAS(gang, l)) {
            if (now.at_controller[l] == DEMANDED) now.out_go[RANK[l]] |= 1 << l;
            now.at_controller[l] = IN_FLIGHT;
            if (now.ticket[l] == 1) now.impatient = 0;
            take_ticket(l);
            ranks |= 1 << RANK[l];
        }
#ifdef RUNS
        EACH_KEY(k) if (with_run && (MEMBERS[k] & gang)) EACH_KEY(next) if (HAS(RUN[k], next)) {
            int fits = !(LIGHT[next] & ~need) && !holds_anyone(next);
            EACH_LAUNCH(l) if (HAS(MEMBERS[next], l))
                fits &= HAS(ranks, RANK[l]) && (now.at_controller[l] == ABSENT || now.at_controller[l] == DEMANDED);
            if (fits) give_tokens(next, ranks);
        }
#endif
    }
    /* Asks the soft tokens on these circuits back. True: none is left, none is on its way. */
    static int take_back(int circuits) {
        int none = 1;
        EACH_RANK(r) EACH_KEY(k) if (HAS(now.token[r], k) && (circuits_of(LIGHT[k]) & circuits)) {
            none = 0;
            if (!HAS(now.revoked[r], k)) now.out_revoke[r] |= 1 << k;
            now.revoked[r] |= 1 << k;
#ifdef MOVE_WITHOUT_ANSWER
            now.token[r] &= ~(1 << k);
#endif
        }
        return none;
    }
    static void move(int circuits) {
        int missing = with(circuits);
        EACH_LAUNCH(l)
            if (now.at_rank[l] == STARTED && now.at_controller[l] != SUSPENDED && !HAS(now.packets, l) && (circuits_of(NEEDS[l]) & now.lit & missing))
                now.moved_under = 1;
        now.lit &= ~missing;
        now.quantum &= ~missing;
        now.guessed &= ~missing;
        now.moving |= circuits;
    }
    /* `reserved` by earlier gangs; `patient`: by those of them that one whose circuits are lit may not pass. */
    static void attempt(int gang, int* reserved, int* patient) {
        int need = needs_of(gang), obstructed, held = busy(), use = plan(need, held, *reserved, &obstructed);
        if (use < 0) {                              /* it keeps its ticket, and reserves on no rail */
#ifdef KEEP_RESERVATIONS
            *reserved |= circuits_of(need) | with(circuits_of(need));
#endif
            return;
        }
        int on_its_way = circuits_of(need) & now.moving, fresh = use & ~now.lit & ~now.moving, missing = with(obstructed & fresh);
        int lit_now = !not_in(need, now.lit & ~unusable()) && !on_its_way;
        if (lit_now && (joins_flight(gang) || has_laggard(gang, use | with(use)) || !(use & now.lit & ~now.quantum))) return grant(gang, 1);
        if (lit_now && !(use & *patient)) return grant(gang, !(use & *reserved));     /* no run on what others wait for */
        if (!obstructed && !on_its_way) {
            if (!fresh) return grant(gang, 1);
            move(fresh);
        } else if ((missing & held & ~now.moving) && !(now.quantum & missing) && take_back(missing) && !(obstructed & *reserved) && !now.victims) {
            int all = 1, holders = 0;
            EACH_LAUNCH(l) if (now.at_controller[l] == IN_FLIGHT && (circuits_of(NEEDS[l]) & now.lit & missing)) {
                holders |= 1 << l;
                all &= may_never_end(l);
            }
            if (all) now.victims = holders;
        }
#ifndef NO_RESERVATIONS
        *reserved |= use | with(use);
#ifndef LIT_PASSES_FOR_EVER
        if (!(gang & ~now.aged)) *patient |= use | with(use);
#endif
#endif
    }
    /* One look at all gangs in ticket order. */
    static void schedule(void) {
        int seen = 0, reserved = 0, patient = 0;
        now.victims = 0;
        if (now.down_) return;
        give_tickets();
        for (;;) {
            int head = -1;
            EACH_LAUNCH(l) if (waits(l) && now.ticket[l] && !HAS(seen, l) && (head < 0 || now.ticket[l] < now.ticket[head])) head = l;
            if (head < 0) break;
            int gang = gang_of(head);
#ifdef UNION_OF_KEYS
            EACH_LAUNCH(l) if (HAS(gang, l)) EACH_KEY(k) if (HAS(KEYS[l], k) && !full(k)) { seen |= gang; gang = 0; }
#endif
            seen |= gang;
            if (gang) attempt(gang, &reserved, &patient);
        }
    }

    /* Speculation: circuits for a key that is expected, on ports that nobody holds or waits for. Never evicts. */
    static int reserved_by_anyone(void) {
        int out = 0, obstructed;
        EACH_LAUNCH(l) if (waits(l) && now.ticket[l]) {
            int use = plan(needs_of(gang_of(l)), busy(), 0, &obstructed);
            if (use >= 0) out |= use | with(use);
        }
        return out;
    }
    static int wanted_by_speculation(int k) {       /* 0: not now */
        int obstructed, held = busy(), reserved = reserved_by_anyone();
#ifdef SPECULATION_EVICTS
        held = 0;
#endif
#ifdef SPECULATE_ON_RESERVED
        reserved = 0;
#endif
        if (now.down_ || now.guesses[k] >= GUESSES || !dark(LIGHT[k])) return 0;
        int use = plan(LIGHT[k], held, reserved, &obstructed);
        if (use < 0 || obstructed || ((use | with(use)) & (now.moving | now.guessed))) return 0;
        return use & ~now.lit;
    }
    static void speculate(int k) {
        int use = wanted_by_speculation(k);
        ++now.guesses[k];
        move(use);
        now.guessed |= use;
    }
    /* Its members may start at once when all of them were sure. */
    static int may_trust(int k) {
        int there = circuits_of(LIGHT[k]) & (now.lit | now.moving), want = there | with(there);
        if (now.down_ || not_in(LIGHT[k], now.lit & ~unusable()) || (there & now.moving) || holds_anyone(k) || now.guesses[k] >= GUESSES) return 0;
        EACH_LAUNCH(l) if (HAS(MEMBERS[k], l) && now.at_controller[l] != ABSENT && now.at_controller[l] != DEMANDED) return 0;
        return !(want & reserved_by_anyone());
    }

    /* A switch fails with some of its commands carried out; read back later. */
    static void fail(int w) {
        now.broken |= 1 << w;
        now.unknown |= now.moving & SWITCH[w];
        now.moving &= ~SWITCH[w];
        ++now.faults;
    }
    static void read_back(int w, int carried_out) {
        if (carried_out) now.lit |= now.unknown & SWITCH[w];
        now.unknown &= ~SWITCH[w];
        now.broken &= ~(1 << w);
    }

    /* The controller dies: what it knew and every session are gone, what it has commanded may still come. */
    static void crash(void) {
        EACH_LAUNCH(l) { now.at_controller[l] = ABSENT; now.ticket[l] = 0; }
        EACH_RANK(r) now.token[r] = now.revoked[r] = 0;
        now.impatient = 0;
        now.aged = 0;
        now.heard = now.quantum = now.guessed = 0;
        now.late = now.moving;
        now.moving = 0;
        now.down_ = 1;
        ++now.crashes;
    }
    static int may_return(void) {
#ifdef NO_DEADLINE
        return now.down_;
#else
        return now.down_ && !now.late;
#endif
    }
    static void come_late(int carried_out) {
        int missing = with(now.late);
        EACH_LAUNCH(l) if (carried_out && now.at_rank[l] == STARTED && (now.at_controller[l] == IN_FLIGHT) && (circuits_of(NEEDS[l]) & now.lit & missing)) now.moved_under = 1;
        if (carried_out) { now.lit = (now.lit & ~missing) | now.late; now.moving &= ~missing; }
        now.late = 0;
    }
    /* A session begins with a snapshot. */
    static int may_hear(int r) { return !now.down_ && !HAS(now.heard, r); }
    static void on_snapshot(int r) {
        now.heard |= 1 << r;
        EACH_LAUNCH(l) if (RANK[l] == r) {
            if (now.at_rank[l] == FINISHED) now.at_controller[l] = DONE;
            if (now.at_rank[l] == READY) now.at_controller[l] = DEMANDED;
#ifndef SNAPSHOT_WITHOUT_FLIGHT
            if (now.at_rank[l] == STARTED) now.at_controller[l] = dark(NEEDS[l]) ? SUSPENDED : IN_FLIGHT;
#endif
            if (now.at_rank[l] != IDLE) now.reported |= 1 << l;
            if (now.at_rank[l] == FINISHED) now.soft[r] &= ~KEYS[l];
        }
#ifndef SNAPSHOT_WITHOUT_TOKENS
        now.token[r] = now.soft[r];
#endif
    }

    /* --- messages that the controller gets ------------------------------------------------------------------ */
    static void on_demand(int launches) {
        EACH_LAUNCH(l) if (HAS(launches, l) && now.at_controller[l] == ABSENT) now.at_controller[l] = DEMANDED;
    }
    static void on_done(int launches) {
        EACH_LAUNCH(l) if (HAS(launches, l)) {
            take_ticket(l);
            now.at_controller[l] = DONE;
            now.token[RANK[l]] &= ~KEYS[l];
            now.revoked[RANK[l]] &= ~KEYS[l];
        }
    }
    static void on_returned(int r, int launches, int ended) {
        now.token[r] &= ~now.revoked[r];
        now.revoked[r] = 0;
        on_done(ended);
        EACH_LAUNCH(l) if (HAS(launches, l) && (now.at_controller[l] == ABSENT || now.at_controller[l] == DEMANDED)) {
            take_ticket(l);
            now.at_controller[l] = IN_FLIGHT;
        }
    }
    /* The hold time counts only for a gang that is complete and not granted, and decides for all of it. */
    static void on_expired(int l) {
        if (now.at_controller[l] != DEMANDED || !full_key_of(l)) return;
        int gang = gang_of(l);
        EACH_LAUNCH(m) if (HAS(gang, m)) {
            if (now.at_controller[m] == DEMANDED) now.out_go[RANK[m]] |= 1 << m;
            now.at_controller[m] = SUSPENDED;      /* passed: suspended from birth, its circuits still come */
            take_ticket(m);
        }
    }
    /* Gangs grow old in the order in which they were complete. */
    static int next_to_age(void) {
        int first = -1;
        EACH_LAUNCH(l) if (waits(l) && now.ticket[l] && !HAS(now.aged, l) && (first < 0 || now.ticket[l] < now.ticket[first])) first = l;
        return first;
    }
    static int may_lose_patience(void) {
        int first = 0;
        EACH_LAUNCH(l) first |= now.ticket[l] == 1;
        return first && !now.impatient;
    }
    static void suspend_victims(void) {
        EACH_LAUNCH(l) if (HAS(now.victims, l)) now.at_controller[l] = SUSPENDED;
        now.victims = 0;
    }

    /* --- the rank's manager ---------------------------------------------------------------------------------- */
    static int covered(int l) {
#ifdef ANY_KEY_COVERS
        return (now.soft[RANK[l]] & KEYS[l]) != 0;
#else
        return !(KEYS[l] & ~now.soft[RANK[l]]);
#endif
    }
    static void start(int l) {
        if (now.at_controller[l] != SUSPENDED && dark(NEEDS[l])) now.in_the_dark = 1;
        now.at_rank[l] = STARTED;
        now.started |= 1 << l;
    }
    static void on_grant(int r, int launches, int keys) {
        now.soft[r] |= keys;
        EACH_LAUNCH(l) if (RANK[l] == r && now.at_rank[l] == READY && (HAS(launches, l) || covered(l))) start(l);
    }
#ifdef AHEAD
    /* Early release: a gate stores ready, then looks at go; the manager takes go back, then looks at ready. The gate's
     * store may still be in a buffer while it looks (UNFENCED); the fence has it out first. */
    static int not_ahead(int l) { return !HAS(now.ahead | now.taken_back | now.ready_word | now.in_buffer, l); }
    static int may_offer(int l) { return now.at_rank[l] == IDLE && covered(l) && not_ahead(l) && !now.asked_back[RANK[l]]; }
    static int may_reach_ahead(int l) {
        return gate_reached(l) && HAS(now.ahead | now.taken_back, l) && !HAS(now.ready_word | now.in_buffer, l);
    }
    static void reach_ahead(int l) {
#ifdef UNFENCED
        now.in_buffer |= 1 << l;
#else
        now.ready_word |= 1 << l;
#endif
    }
    static void drain_buffer(int l) {
        if (HAS(now.in_buffer, l)) now.ready_word |= 1 << l;
        now.in_buffer &= ~(1 << l);
    }
    static int may_look(int l) { return HAS(now.ready_word | now.in_buffer, l) && !HAS(now.looked, l); }
    static void look_at_go(int l) {
        now.looked |= 1 << l;
        if (HAS(now.ahead, l)) start(l);
        now.ahead &= ~(1 << l);
    }
    /* Its manager sees that it is ready, and was not let go, or not in time. */
    static int may_ask(int l) {
        return now.at_rank[l] == IDLE && HAS(now.ready_word, l) && !HAS(now.ahead | now.taken_back, l);
    }
    static int take_back_ahead(int r, int keys) {
        int back = 0;
        EACH_LAUNCH(l) if (RANK[l] == r && (KEYS[l] & keys) && HAS(now.ahead, l)) back |= 1 << l;
#ifndef WITHDRAW_NOTHING
        now.ahead &= ~back;
        now.taken_back |= back;
#endif
        return back;
    }
    static void settle_ahead(int r) {
        EACH_LAUNCH(l) if (RANK[l] == r && HAS(now.taken_back, l)) {
            now.taken_back &= ~(1 << l);
            if (HAS(now.ready_word, l) && now.at_rank[l] == IDLE) start(l);
        }
    }
    static int seen_by_manager(void) { return ~now.in_buffer; }
    static void forget_gate(int l) {
        now.ready_word &= ~(1 << l);
        now.in_buffer &= ~(1 << l);
        now.looked &= ~(1 << l);
    }
#else
    static int not_ahead(int l) { return 1; }
    static int seen_by_manager(void) { return ~0; }
#endif
    static int in_state(int r, int state) {
        int out = 0;
        EACH_LAUNCH(l) if (RANK[l] == r && now.at_rank[l] == state) out |= 1 << l;
        return out;
    }
    static int under(int r, int keys) {
        int out = 0;
        EACH_LAUNCH(l) if (KEYS[l] & keys & now.soft[r]) out |= 1 << l;
        return out;
    }
    /* Inside a run nothing is said; at its end, all that was done. */
    static int may_expire(int l) { return now.at_rank[l] == READY && HAS(now.reported, l) && !HAS(now.expired, l); }
    static void withdraw(int l) {
        now.packets |= 1 << l;
        now.at_rank[l] = STARTED;
        now.started |= 1 << l;
    }
    /* No controller: the gate opens on the same network. */
    static int may_open(int l) { return now.down_ && now.at_rank[l] == READY && !HAS(now.expired, l); }
    static void open_gate(int l) {
        now.at_rank[l] = STARTED;
        now.started |= 1 << l;
        now.expired |= 1 << l;
    }
    /* All members of a key that comes again and again are done: the next round. */
    static int may_repeat(int k) {
        EACH_LAUNCH(l) if (HAS(MEMBERS[k], l) && now.at_controller[l] != DONE) return 0;
        return 1;
    }
    static void repeat(int k) {
        EACH_LAUNCH(l) if (HAS(MEMBERS[k], l)) {
            now.at_rank[l] = IDLE;
            now.at_controller[l] = ABSENT;
            now.finished &= ~(1 << l);
            now.started &= ~(1 << l);
            now.reported &= ~(1 << l);
#ifdef AHEAD
            forget_gate(l);
#endif
        }
        now.transferred &= ~(1 << k);
    }
    static int run_is_over(int r) {
        EACH_LAUNCH(l) if (RANK[l] == r && now.at_rank[l] != FINISHED && (KEYS[l] & now.soft[r])) return 0;
        EACH_KEY(k) if (HAS(now.soft[r], k) && !MEMBERS[k]) return 0;       /* expected, and never comes */
        return 1;
    }
    static int done_now(int r, int launches) {      /* what to say, now that these have finished */
        int say = launches & now.reported;
        if (run_is_over(r)) say |= in_state(r, FINISHED) & ~now.reported;
        if (!HAS(now.heard, r)) say = 0;        /* the snapshot will tell */
        now.reported |= say;
        EACH_LAUNCH(l) if (HAS(say, l)) now.soft[r] &= ~KEYS[l];
        return say;
    }
}

inline must_hold() {
#ifdef CHECK
    assert(!in_the_dark);
    assert(!moved_under)
#else
    skip
#endif
}

c_code {    /* spin takes a call in c_expr for a side effect */
\#define GATE_REACHED gate_reached(Pgate->me)
\#define DATA_CAN_ARRIVE can_transfer(Ptransfer->key)
\#define MEMBER_HAS_ALL has_all(Ptransfer->m)
\#define MAY_LOSE_PATIENCE may_lose_patience()
\#define MAY_AGE (next_to_age() >= 0)
\#define MAY_SPECULATE wanted_by_speculation(Pprophet->key)
\#define MAY_TRUST may_trust(Pprophet->key)
\#define MAY_RETURN may_return()
\#define MAY_HEAR may_hear(Plistener->me)
\#define MAY_OPEN may_open(Phold->me)
\#define MAY_EXPIRE may_expire(Phold->me)
\#define MAY_REPEAT may_repeat(Pround->key)
\#define CAN_FAIL (HAS(FALLIBLE, Poptical_plane->sw) && (now.moving & SWITCH[Poptical_plane->sw]) && now.faults < FAULTS)
\#define IS_BROKEN HAS(now.broken, Poptical_plane->sw)
\#define HEARD HAS(now.heard, Pgate->rank)
\#define REPEATS HAS(ROUND, now.r)
\#define OVER over()
\#define COVERED covered(Pgate->me)
\#define NOT_AHEAD not_ahead(Pgate->me)
\#define MAY_OFFER may_offer(Pgate->me)
\#define MAY_REACH_AHEAD may_reach_ahead(Pgate->me)
\#define IN_BUFFER HAS(now.in_buffer, Pgate->me)
\#define MAY_LOOK may_look(Pgate->me)
\#define MAY_ASK may_ask(Pgate->me)
}

byte r;                     /* scratch; zero between */
short say, ended, asked;

inline look() {             /* what the controller does after each event */
    c_code { schedule(); now.r = 0; };
    must_hold();
    do
    :: r < NR ->
#ifdef CHECK
        assert(len(down[r]) + 2 <= ROOM && len(up[r]) + 2 <= ROOM);
#endif
        if
        :: out_go[r] || out_soft[r] -> down[r]!GRANT,out_go[r],out_soft[r]; out_go[r] = 0; out_soft[r] = 0
        :: else
        fi;
        if
        :: out_revoke[r] -> down[r]!REVOKE,out_revoke[r],0; out_revoke[r] = 0
        :: else
        fi;
        r++
    :: else -> break
    od;
    r = 0
}

inline demand_or_start() {
    if
    :: c_expr { COVERED } -> c_code { start(Pgate->me); now.r = 0; }; must_hold()
    :: else ->
        if
        :: c_expr { HEARD } -> c_code { now.reported |= 1 << Pgate->me; }; up[rank]!DEMAND,(1 << me),0
        :: else         /* no session: the snapshot will tell */
        fi
    fi
}

/* A launch's gate is reached any time after what it waits for. */
proctype gate(byte me; byte rank) {
end:
    do
#if defined(AHEAD) && !defined(NO_OPUS)
    :: atomic { c_expr { MAY_OFFER } -> c_code { now.ahead |= 1 << Pgate->me; } }
    :: atomic { c_expr { MAY_REACH_AHEAD } -> c_code { reach_ahead(Pgate->me); } }
    :: atomic { c_expr { IN_BUFFER } -> c_code { drain_buffer(Pgate->me); } }
    :: atomic { c_expr { MAY_LOOK } -> c_code { look_at_go(Pgate->me); }; must_hold() }
    :: atomic { c_expr { MAY_ASK } -> c_code { now.at_rank[Pgate->me] = READY; now.looked |= 1 << Pgate->me; }; demand_or_start() }
#endif
    :: atomic { c_expr { GATE_REACHED } && c_expr { NOT_AHEAD } ->
        c_code { now.at_rank[Pgate->me] = READY; };
#ifdef NO_OPUS
        c_code { now.at_rank[Pgate->me] = STARTED; now.started |= 1 << Pgate->me; }
#else
        demand_or_start()
#endif
        }
    od
}

/* Data arrives; whoever has all of his has finished. */
proctype transfer(byte key) {
    byte m;
end:
    do
    :: atomic { c_expr { DATA_CAN_ARRIVE } ->
        c_code { now.transferred |= 1 << Ptransfer->key; };
        m = 0;
        do
        :: m < NL ->
            if
            :: c_expr { MEMBER_HAS_ALL } ->
                c_code { now.at_rank[Ptransfer->m] = FINISHED; now.finished |= 1 << Ptransfer->m; };
#if defined(AHEAD) && !defined(NO_OPUS)
                c_code { drain_buffer(Ptransfer->m); };
#endif
#ifndef NO_OPUS
                c_code { now.r = RANK[Ptransfer->m]; now.say = done_now(RANK[Ptransfer->m], 1 << Ptransfer->m); };
                if
                :: say -> up[r]!DONE_,say,0
                :: else
                fi;
                r = 0; say = 0
#endif
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0 }
    od
}

#ifndef NO_OPUS
inline return_run(keys) {
    asked = keys;
    c_code {
        int all = under(Pmanager->me, now.asked);
        now.say = all & in_state(Pmanager->me, STARTED) & seen_by_manager();
        now.ended = all & in_state(Pmanager->me, FINISHED);
        now.reported |= now.say | now.ended;
        now.soft[Pmanager->me] &= ~now.asked;
    };
    asked = 0;
    up[me]!RETURNED,say,ended
}

#ifdef AHEAD
#define ANSWERED (!asked_back[me])
#else
#define ANSWERED true
#endif

proctype manager(byte me) {
    byte kind; short a, b;
end:
    do
#ifdef AHEAD
    :: atomic { asked_back[me] ->       /* go was taken back: who was ready by then has started */
        a = asked_back[me];
        asked_back[me] = 0;
        c_code { settle_ahead(Pmanager->me); };
        must_hold();
        return_run(a);
        a = 0; say = 0; ended = 0 }
#endif
    :: atomic { ANSWERED && nempty(down[me]) -> down[me]?kind,a,b;
        if
        :: kind == GRANT -> c_code { on_grant(Pmanager->me, Pmanager->a, Pmanager->b); now.say = 0; }; must_hold()
#ifdef AHEAD
        :: kind == REVOKE ->
            c_code { now.say = take_back_ahead(Pmanager->me, Pmanager->a); };
            if
            :: say -> asked_back[me] = a
            :: else -> return_run(a)
            fi
#else
        :: kind == REVOKE -> return_run(a)
#endif
        fi;
        kind = 0; a = 0; b = 0; say = 0; ended = 0 }
    od
}

proctype listener(byte me) {
    byte kind; short a, b;
end:
    do
    :: atomic { up[me]?kind,a,b ->
        if
        :: kind == DEMAND -> c_code { on_demand(Plistener->a); now.r = 0; }
        :: kind == DONE_ -> c_code { on_done(Plistener->a); now.r = 0; }
        :: kind == EXPIRED -> c_code { on_expired(Plistener->a); now.r = 0; }
        :: kind == RETURNED -> c_code { on_returned(Plistener->me, Plistener->a, Plistener->b); now.r = 0; }
        fi;
        kind = 0; a = 0; b = 0;
        look() }
#ifdef CRASH
    :: atomic { c_expr { MAY_HEAR } -> c_code { on_snapshot(Plistener->me); }; look() }
#endif
    od
}
#endif

#ifndef NO_OPUS
/* A switch confirms: any time after the command. */
proctype optical_plane(byte sw) {
end:
    do
    :: atomic { c_expr { now.moving & SWITCH[Poptical_plane->sw] } ->
        c_code { int there = now.moving & SWITCH[Poptical_plane->sw]; now.lit |= there; now.moving &= ~there; QUANTUM_OF(there); };
        look() }
#ifdef FAULTS
    :: atomic { c_expr { CAN_FAIL } -> c_code { fail(Poptical_plane->sw); }; look() }
#ifndef FAILS_FOR_EVER
    :: atomic { c_expr { IS_BROKEN } ->
        if
        :: c_code { read_back(Poptical_plane->sw, 1); }
        :: c_code { read_back(Poptical_plane->sw, 0); }
        fi;
        look() }
#endif
#endif
    od
}

#ifndef NO_SUSPENSION
/* T_break passes: any time after the first gang in line began to wait. */
active proctype breaker() {
end:
    do
    :: atomic { victims -> c_code { suspend_victims(); }; look() }
#if defined(RUNS) && !defined(LAGGARDS_FOR_EVER)
    :: atomic { c_expr { MAY_LOSE_PATIENCE } -> impatient = 1; look() }
#endif
    od
}
#endif

/* A dark time passes: any time after a gang was complete. */
active proctype age() {
end:
    do
    :: atomic { c_expr { MAY_AGE } -> c_code { now.aged |= 1 << next_to_age(); }; look() }
    od
}

#ifdef SPECULATE
proctype prophet(byte key) {
end:
    do
    :: atomic { c_expr { MAY_SPECULATE } -> c_code { speculate(Pprophet->key); }; look() }
#ifdef TRUST
    :: atomic { c_expr { MAY_TRUST } -> c_code { ++now.guesses[Pprophet->key]; give_tokens(Pprophet->key, (1 << NR) - 1); }; look() }
#endif
    od
}
#endif

#ifdef CRASH
inline drain(channel) {
    do
    :: nempty(channel) -> channel?_,_,_
    :: else -> break
    od
}

active proctype lease() {
end:
    do
    :: atomic { crashes < 1 && !down_ ->
        c_code { crash(); };
#ifdef AHEAD
        c_code { EACH_RANK(r) { settle_ahead(r); now.asked_back[r] = 0; } };      /* nobody waits for the answer */
#endif
        r = 0;
        do
        :: r < NR -> drain(up[r]);
#ifndef NO_FENCING
            drain(down[r]);
#endif
            r++
        :: else -> break
        od;
        r = 0 }
    :: atomic { late ->
        if
        :: c_code { come_late(1); }
        :: c_code { come_late(0); }
        fi;
        look() }
    :: atomic { c_expr { MAY_RETURN } -> down_ = 0 }
    od
}
#endif

#ifdef HOLD
proctype hold(byte me; byte rank) {
end:
    do
    :: atomic { c_expr { MAY_EXPIRE } ->
        c_code { now.expired |= 1 << Phold->me; };
#ifdef WITHDRAW
        c_code { withdraw(Phold->me); }
#else
        up[rank]!EXPIRED,me,0
#endif
        }
    :: atomic { c_expr { MAY_OPEN } -> c_code { open_gate(Phold->me); } }
    od
}
#endif

#ifdef ROUNDS
#if NR > 3
#define NOTHING_UNDER_WAY (empty(down[0]) && empty(down[1]) && empty(down[2]) && empty(down[3]))
#elif NR > 2
#define NOTHING_UNDER_WAY (empty(down[0]) && empty(down[1]) && empty(down[2]))
#else
#define NOTHING_UNDER_WAY (empty(down[0]) && empty(down[1]))
#endif
proctype round(byte key) {
end:
    do
    :: atomic { c_expr { MAY_REPEAT } && NOTHING_UNDER_WAY -> c_code { repeat(Pround->key); } }
    od
}
#endif

#if defined(QUANTUM) && !defined(QUANTUM_FOR_EVER)
active proctype clock() {
end:
    do
    :: atomic { quantum -> quantum = 0; look() }
    od
}
#endif
#endif

init {
    atomic {
#ifdef NO_OPUS
        lit = (1 << NC) - 1;        /* a packet network: every circuit at once, no gate */
#else
        c_code { now.lit = LIT; };
        r = 0;
        do :: r < NR -> run manager(r); run listener(r); r++ :: else -> break od;
        r = 0;
        do :: r < NS -> run optical_plane(r); r++ :: else -> break od;
#endif
        r = 0;
        do
        :: r < NL -> c_code { now.say = RANK[now.r]; }; run gate(r, say);
#if defined(HOLD) && !defined(NO_OPUS)
            run hold(r, say);
#endif
            r++
        :: else -> break
        od;
#ifndef NO_OPUS
#ifdef SPECULATE
        r = 0;
        do :: r < NK -> run prophet(r); r++ :: else -> break od;
#endif
#ifdef ROUNDS
        r = 0;
        do
        :: r < NK ->
            if
            :: c_expr { REPEATS } -> run round(r)
            :: else
            fi;
            r++
        :: else -> break
        od;
#endif
#endif
        r = 0; say = 0;
        do :: r < ND -> run transfer(r); r++ :: else -> break od;
        r = 0
    };
    c_expr { OVER }
}

#ifdef LIVENESS
#define is_over (c_expr { OVER })
ltl ends { <> is_over }
#endif
