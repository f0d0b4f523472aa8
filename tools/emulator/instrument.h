// The SCPI front of the emulated switch: bytes of sessions and the time come in, bytes to sessions go
// out. Pure; sockets are ScpiServer's. Knows Polatis' commands (docs/drivers.md) and, under
// :emulator:, the faults that tests ask for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/emulator/counters.h"
#include "tools/emulator/faults.h"
#include "tools/emulator/optical_plane.h"

namespace opus::emulator {

using SessionId = std::uint64_t;

struct Output {
    SessionId session = 0;
    std::string bytes;
    bool close = false;
};
using Outputs = std::vector<Output>;

enum class BootMode : std::uint8_t { dark, restore, automatic };  // no circuits; all made again; nothing moves

struct InstrumentOptions {
    std::string model = "OCS-EMU";
    bool power_monitor = true;
    BootMode boot = BootMode::automatic;
};

class Instrument {
public:
    Instrument(OpticalPlane& optical_plane, const Counters& counters, InstrumentOptions options);

    // False while the switch boots: the connection is to be closed at once.
    bool open(SessionId session, TimeNs now);
    void close(SessionId session);
    void receive(SessionId session, std::string_view bytes, TimeNs now, Outputs& out);

    // Slow replies: when advance() has something to do next; kNever if nothing.
    TimeNs next_due() const;
    void advance(TimeNs now, Outputs& out);

    // One command line as if a session had sent it; its reply, or the error that it left.
    std::string run(std::string_view line, TimeNs now);

    const Faults& faults() const { return faults_; }

private:
    struct Session {
        std::string partial;    // bytes after the last line end
        bool overlong = false;  // throwing away until the next line end
        std::deque<std::string> errors;
    };
    struct Delayed {
        TimeNs due = 0;
        SessionId session = 0;
        std::string line;
    };
    struct Call {  // one command of a line, while it runs
        Session& session;
        std::string_view arguments;
        bool query = false;
        TimeNs now = 0;
        std::string reply;
    };
    struct Command {
        const char* header;  // long form, the capitals are the short form
        bool query;
        void (Instrument::*run)(Call&);
    };
    static const Command kCommands[];

    void line(SessionId id, std::string_view text, TimeNs now, Outputs& out);
    std::string execute(Session& session, std::string_view text, TimeNs now);
    bool changes_map(std::string_view line) const;
    const Command* find(std::string_view header, bool query) const;
    void reboot(bool lose, TimeNs down_ns, TimeNs now);
    bool take_change(Call& call);  // false when a fault refuses it
    static void error(Call& call, int code, const std::string& text);
    static void finish(Call& call, const Outcome& outcome);

    void identify(Call&);
    void reset(Call&);
    void clear_status(Call&);
    void operation_complete(Call&);
    void next_error(Call&);
    void size(Call&);
    void connect_add(Call&);
    void connect_only(Call&);
    void connect_sub(Call&);
    void connect_state(Call&);
    void connect_port(Call&);
    void disconnect_all(Call&);
    void port_disable(Call&);
    void port_enable(Call&);
    void port_state(Call&);
    void power(Call&);
    void boot_mode(Call&);
    void boot_mode_query(Call&);
    void emulator_count(Call&);
    void emulator_reboot(Call&);
    void fault_slow(Call&);
    void fault_late(Call&);
    void fault_refuse(Call&);
    void fault_drop(Call&);
    void fault_drop_now(Call&);
    void fault_stuck(Call&);
    void fault_readback(Call&);
    void fault_garbage(Call&);
    void fault_mute(Call&);
    void fault_partial(Call&);
    void fault_clear(Call&);

    void connect(Call& call, bool only);
    bool set_count(Call& call, std::uint32_t& fault);

    OpticalPlane& optical_plane_;
    const Counters& counters_;
    InstrumentOptions options_;
    Faults faults_;
    std::map<SessionId, Session> sessions_;
    std::deque<Delayed> delayed_;
    std::vector<SwitchPort> last_changed_;
    TimeNs booted_ns_ = 0;
    bool drop_caller_ = false, drop_others_ = false, drop_all_ = false;  // after the line that runs now
};

}  // namespace opus::emulator
