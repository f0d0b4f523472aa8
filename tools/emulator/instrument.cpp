#include "tools/emulator/instrument.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "drivers/scpi_text.h"

namespace opus::emulator {

namespace scpi = drivers::scpi;

namespace {

constexpr std::size_t kMaxErrors = 16;

// One node of a header against "CONNect": the short form (its capitals) or the whole, in any case.
bool node_matches(std::string_view pattern, std::string_view text) {
    std::size_t capitals = 0;
    while (capitals < pattern.size() && !std::islower(static_cast<unsigned char>(pattern[capitals]))) ++capitals;
    if (text.size() != capitals && text.size() != pattern.size()) return false;
    return std::equal(text.begin(), text.end(), pattern.begin(),
                      [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

bool header_matches(std::string_view pattern, std::string_view text) {
    while (true) {
        const auto p = pattern.find(':'), t = text.find(':');
        if (!node_matches(pattern.substr(0, p), text.substr(0, t))) return false;
        if ((p == std::string_view::npos) != (t == std::string_view::npos)) return false;
        if (p == std::string_view::npos) return true;
        pattern.remove_prefix(p + 1);
        text.remove_prefix(t + 1);
    }
}

}  // namespace

Instrument::Instrument(OpticalPlane& optical_plane, const Counters& counters, InstrumentOptions options)
    : optical_plane_(optical_plane), counters_(counters), options_(std::move(options)) {}

bool Instrument::open(SessionId session, TimeNs now) {
    if (now < booted_ns_) return false;
    sessions_.try_emplace(session);
    return true;
}

void Instrument::close(SessionId session) {
    sessions_.erase(session);  // what it had said whole is carried out all the same, and answered to nobody
}

void Instrument::receive(SessionId id, std::string_view bytes, TimeNs now, Outputs& out) {
    while (!bytes.empty()) {
        const auto it = sessions_.find(id);
        if (it == sessions_.end()) return;
        Session& session = it->second;
        const auto end = bytes.find('\n');
        if (!session.overlong) session.partial.append(bytes.substr(0, end));
        if (session.partial.size() > scpi::kMaxLine) {
            session.overlong = true;
            session.partial.clear();
        }
        if (end == std::string_view::npos) return;
        bytes.remove_prefix(end + 1);
        if (session.overlong) {
            session.overlong = false;
            session.errors.push_back(scpi::format_error({-223, "Too much data"}));
            continue;
        }
        std::string text;
        text.swap(session.partial);
        // A line never overtakes an earlier one of its session; those of others it may.
        TimeNs due = now + faults_.slow_ns;
        if (faults_.late_ns > 0 && changes_map(text)) due += std::exchange(faults_.late_ns, 0);
        for (const Delayed& d : delayed_)
            if (d.session == id) due = std::max(due, d.due);
        if (due > now) {
            const auto after =
                std::find_if(delayed_.begin(), delayed_.end(), [&](const Delayed& d) { return d.due > due; });
            delayed_.insert(after, {due, id, std::move(text)});
        } else {
            line(id, text, now, out);
        }
    }
}

bool Instrument::changes_map(std::string_view line) const {
    for (std::string_view unit : scpi::split(line, ';')) {
        const std::string_view header = unit.substr(0, unit.find_first_of(" \t"));
        if (!header.starts_with(':')) continue;  // nobody writes what matters here in the short way
        const Command* command = find(header.substr(1), false);
        if (command != nullptr && (command->run == &Instrument::connect_add || command->run == &Instrument::connect_only ||
                                   command->run == &Instrument::connect_sub || command->run == &Instrument::disconnect_all))
            return true;
    }
    return false;
}

TimeNs Instrument::next_due() const { return delayed_.empty() ? kNever : delayed_.front().due; }

void Instrument::advance(TimeNs now, Outputs& out) {
    while (!delayed_.empty() && delayed_.front().due <= now) {
        const Delayed d = std::move(delayed_.front());
        delayed_.pop_front();
        if (sessions_.count(d.session) != 0)
            line(d.session, d.line, now, out);
        else
            run(d.line, now);
    }
}

std::string Instrument::run(std::string_view text, TimeNs now) {
    Session session;
    const std::string reply = execute(session, text, now);
    return session.errors.empty() ? reply : session.errors.front();
}

void Instrument::line(SessionId id, std::string_view text, TimeNs now, Outputs& out) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return;
    std::string reply = execute(it->second, text, now);
    const bool drop_caller = drop_caller_ || drop_all_, drop_others = drop_others_ || drop_all_;
    drop_caller_ = drop_others_ = drop_all_ = false;
    if (!reply.empty() && !drop_caller) {
        if (faults_.mute) {
            --faults_.mute;
        } else if (faults_.garbage) {
            --faults_.garbage;
            out.push_back({id, std::string("\xff\x00\x07(@,,@):;\"%n\r\n", 15), false});
        } else {
            out.push_back({id, reply + "\r\n", false});
        }
    }
    std::erase_if(sessions_, [&](const auto& entry) {
        const bool dropped = entry.first == id ? drop_caller : drop_others;
        if (dropped) out.push_back({entry.first, {}, true});
        return dropped;
    });
}

std::string Instrument::execute(Session& session, std::string_view text, TimeNs now) {
    std::string replies, path;
    for (std::string_view unit : scpi::split(text, ';')) {
        if (unit.empty()) continue;
        const auto space = unit.find_first_of(" \t");
        std::string_view header = unit.substr(0, space);
        Call call{
            session, space == std::string_view::npos ? std::string_view{} : scpi::trim(unit.substr(space)), false, now, {}};
        if (header.back() == '?') {
            call.query = true;
            header.remove_suffix(1);
        }
        // Relative to the branch of the command before it, as SCPI-99 has it; common commands leave it.
        std::string whole;
        if (header.starts_with('*')) {
            whole = header;
        } else {
            whole = header.starts_with(':') ? std::string(header.substr(1)) : path + std::string(header);
            const auto branch = whole.rfind(':');
            path = branch == std::string::npos ? std::string{} : whole.substr(0, branch + 1);
        }
        const Command* command = find(whole, call.query);
        if (!command) {
            error(call, -113, "Undefined header; " + whole.substr(0, 60));
            continue;
        }
        (this->*command->run)(call);
        if (call.reply.empty()) continue;
        if (!replies.empty()) replies += ';';
        replies += call.reply;
    }
    return replies;
}

const Instrument::Command* Instrument::find(std::string_view header, bool query) const {
    for (const Command* c = kCommands; c->header; ++c)
        if (c->query == query && header_matches(c->header, header)) return c;
    return nullptr;
}

void Instrument::error(Call& call, int code, const std::string& text) {
    auto& errors = call.session.errors;
    if (errors.size() < kMaxErrors)
        errors.push_back(scpi::format_error({code, text}));
    else
        errors.back() = scpi::format_error({-350, "Queue overflow"});
}

void Instrument::finish(Call& call, const Outcome& outcome) {
    if (outcome.code) error(call, outcome.code, outcome.text);
}

}  // namespace opus::emulator
