// A ring whose shim writes what the given bytes say, read by the manager's reader and core as the daemon
// does. Every frame that comes of it must be one that the controller accepts. Used by the tests with
// random bytes, and by the fuzzer.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/ring_reader.h"
#include "opus/wire_codec.h"

namespace opus::manager::test {

class HostileRing {
public:
    static constexpr std::uint32_t kSlots = 64;

    HostileRing() : memory_(ring::Layout{kSlots}.bytes() / 64), core_("n0", CoreOptions{}) {
        view_ = ring::view_of(memory_.data(), kSlots);
        view_.header->gpu = kNone;
        reader_ = std::make_unique<RingReader>(view_, 0, false);
        on(RankUp{{0, 1, kNone, 1'000, Policy::proceed, "job"}, Mode::enforce, false});
        on(ControllerUp{1});
        on(FromController{1, 1, wire::Welcome{1, 1, 0, {{0, 2, "", "r0"}}}});
        // Something good to begin with, so that small changes reach deep.
        ring::CommEntry& comm = view_.comms[0];
        comm.id = {1, 1};
        comm.size = 2;
        comm.generation = 1;
        comm.mode = static_cast<std::uint32_t>(Mode::enforce);
        comm.state = static_cast<std::uint32_t>(ring::CommState::registered);
        for (std::uint64_t seq = 0; seq < 4; ++seq) {
            ring::LaunchRecord& record = view_.record(seq);
            record.gate = static_cast<std::uint16_t>(ring::Gate::stream);
            record.op_count = 1;
            record.op = {static_cast<std::uint8_t>(OpKind::all_reduce), 0, 0, 0, seq, 1, 0, 8};
            record.commit = ring::kCommitTag | (seq + 1);
        }
        view_.header->head = 4;
    }

    // Empty, or what went wrong. Each 11 bytes: where (2), what to do (1), a word (8).
    std::string play(const std::uint8_t* data, std::size_t size) {
        look();
        for (; size >= 11; data += 11, size -= 11) {
            std::uint16_t where = 0;
            std::uint64_t word = 0;
            std::memcpy(&where, data, 2);
            std::memcpy(&word, data + 3, 8);
            store(where, data[2] % 8, word);
            if (data[2] >= 128) look();
            if (!fault_.empty()) return fault_;
        }
        look();
        on(RankDown{0});
        return fault_;
    }

    const RingReader& reader() const { return *reader_; }
    const Core& core() const { return core_; }
    const ring::View& view() const { return view_; }

private:
    struct alignas(64) Line {
        std::uint64_t word[8] = {};
    };

    // Only what a shim owns.
    void store(std::uint16_t where, unsigned what, std::uint64_t word) {
        const ring::Layout at{kSlots};
        auto* bytes = reinterpret_cast<std::byte*>(memory_.data());
        const auto put = [&](std::size_t begin, std::size_t end) {
            const std::size_t words = (end - begin) / 8;
            std::memcpy(bytes + begin + 8 * (where % words), &word, 8);
        };
        switch (what) {
            case 0: return put(at.comms_offset(), at.slots_offset());
            case 1: return put(at.comms_offset(), at.comms_offset() + 4 * sizeof(ring::CommEntry));
            case 2: return put(at.slots_offset(), at.ready_offset());
            case 3: return put(at.slots_offset(), at.slots_offset() + 8 * ring::kLine);
            case 4: return view_.ready[where % kSlots].value.store(where % 3 == 0 ? word : where % kSlots + 1);
            case 5: return view_.done[where % kSlots].value.store(where % 3 == 0 ? word : where % kSlots + 1);
            case 6: return view_.header->head.store(where % 3 == 0 ? word : where % (2 * kSlots));
            default: return put(256, 320);
        }
    }

    void look() {
        std::vector<Event> events;
        reader_->look(events, true);
        if (events.size() > 4 * kSlots + 4 * ring::kMaxComms) fault_ = "one look tells of more than a ring can hold";
        for (const Event& event : events) on(event);
        while (core_.flush(now_, actions_)) {}
        perform();
        PollHint hint;
        reader_->await(hint, 1, [](std::uint64_t) { return true; });
        // What is enforced is asked for and granted, so that all the ways of a launch are walked.
        for (const CommId& comm : registered_) on(FromController{1, 1, wire::Verdicts{{{comm, Verdict::enforced}}}});
        registered_.clear();
        if (!asked_.empty()) on(FromController{1, 1, wire::Grant{++grants_, asked_, {}, {}}});
        asked_.clear();
    }

    void on(const Event& event) {
        now_ += 1'000;
        core_.on(event, now_, now_, actions_);
        perform();
        if (std::string broken = core_.check(); !broken.empty()) fault_ = broken;
    }

    void perform() {
        wire::Frame frame{1, 1, ++sequence_, {}};
        Actions actions;
        actions.swap(actions_);
        for (Action& action : actions) {
            if (auto* a = std::get_if<Send>(&action)) {
                note(a->message);
                frame.messages.push_back(std::move(a->message));
            } else if (const auto* r = std::get_if<Retired>(&action)) {
                reader_->retired(*r);
            } else if (const auto* f = std::get_if<FreeComm>(&action)) {
                view_.comms[f->index].freed = f->generation;
                reader_->comm_freed(f->index, f->generation);
            } else if (const auto* g = std::get_if<SetGo>(&action)) {
                view_.go[g->seq & view_.mask].value = g->seq + 1;
            }
        }
        if (frame.messages.empty()) return;
        wire::encode(frame, bytes_);
        auto decoded = wire::decode(bytes_);
        if (const auto* error = std::get_if<wire::DecodeError>(&decoded))
            fault_ = "a frame nobody accepts: " + error->text;
    }

    void note(const wire::Message& message) {
        if (const auto* m = std::get_if<wire::Register>(&message))
            for (const auto& member : m->comms) registered_.push_back(member.comm);
        if (const auto* m = std::get_if<wire::Demand>(&message))
            for (const auto& launch : m->launches) asked_.push_back(launch.launch);
    }

    std::vector<Line> memory_;
    ring::View view_;
    std::unique_ptr<RingReader> reader_;
    Core core_;
    Actions actions_;
    std::vector<CommId> registered_;
    std::vector<wire::LocalLaunch> asked_;
    std::string bytes_, fault_;
    TimeNs now_ = 1'000'000'000;
    std::uint64_t sequence_ = 0, grants_ = 0;
};

}  // namespace opus::manager::test
