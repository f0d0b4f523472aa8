#include "shim/nccl_settings.h"

#include <strings.h>
#include <cstddef>
#include <cstring>

#include "opus/launch_ring.h"
#include "opus/nccl_conf.h"
#include "shim/cuda_driver.h"
#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/settings.h"

namespace opus::shim {

namespace {

enum class Otherwise { warned, refused };

// --- the rules: does this value fit? --------------------------------------------------------------

bool anything(const char*) { return true; }
bool nothing(const char* value) { return value[0] == '\0'; }
bool zero(const char* value) { return value[0] == '\0' || strcmp(value, "0") == 0; }
bool not_zero(const char* value) { return strcmp(value, "0") != 0; }

// "Ring", "ring,ring", "allreduce:ring;broadcast:ring": nothing but rings in any part. A list that begins with ^ names
// what is not to be used.
bool rings(const char* value) {
    if (value[0] == '\0') return false;
    for (const char* at = value; *at != '\0';) {
        const std::size_t length = strcspn(at, ",;:");
        const bool is_collective = at[length] == ':';
        if (!is_collective && (length != 4 || strncasecmp(at, "ring", 4) != 0)) return false;
        at += length + (at[length] != '\0' ? 1 : 0);
    }
    return true;
}

// What is no number counts as not given (param.cc).
std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
    const NcclValue found = find_nccl_value(variable);
    std::uint64_t number = otherwise;
    return found.given && parse_number(found.value, number) ? number : otherwise;
}

bool never_crosses() { return number_of("NCCL_CROSS_NIC", 2) == 0; }
bool zero_or_rails(const char* value) { return zero(value) || never_crosses(); }
bool not_zero_or_rails(const char* value) { return not_zero(value) || never_crosses(); }

bool zero_or_rings(const char* value) { return zero(value) || rings(find_nccl_value("NCCL_ALGO").value); }

// "ib0", "eth0,ib1", "=ib0"; a list that begins with ^ names what is not to be used.
bool not_infiniband(const char* value) {
    if (value[0] == '^') return true;
    const char* at = value[0] == '=' ? value + 1 : value;
    for (; *at != '\0'; at += strcspn(at, ","), at += *at != '\0' ? 1 : 0)
        if (strncmp(at, "ib", 2) == 0) return false;
    return true;
}

// transport/net_ib: 18 before 2.23, 20 from then on, of 22 at most. 0: for ever.
bool resends_long(const char* value) {
    std::uint64_t exponent = 0;
    return !parse_number(value, exponent) || exponent == 0 || (exponent >= 20 && exponent <= 22);
}

void tell(const char* variable, const NcclValue& found, Otherwise otherwise, const char* wanted, const char* why) {
    const bool refused = otherwise == Otherwise::refused;
    say(refused ? Level::error : Level::warn, "%s=%.60s%s%.80s%s %s: %s; set it to %s", variable, found.value,
        found.from[0] != '\0' ? " (" : "", found.from, found.from[0] != '\0' ? ")" : "",
        refused ? "cannot be served with circuits" : "does not fit", why, wanted);
}

}  // namespace

bool nccl_settings_fit() {
    bool all = true;
    const auto look = [&all](const char* variable, bool (*fits)(const char*), const char* wanted, Otherwise otherwise,
                             const char* run_sets, const char* why) {
        const NcclValue found = find_nccl_value(variable);
        if (!found.given) {
            if (run_sets[0] != '\0') say(Level::info, "%s is not set: %s; opus-run sets %s", variable, why, run_sets);
        } else if (!fits(found.value)) {
            tell(variable, found, otherwise, wanted, why);
            all = all && otherwise != Otherwise::refused;
        }
    };
#define OPUS_NCCL_SETTING(variable, fits, wanted, otherwise, run_sets, why) \
    look(#variable, fits, wanted, Otherwise::otherwise, run_sets, why);
#include "opus/nccl_settings.h"
    return all;
}

namespace {

constexpr int kRuntimeConnect = 22203;

int nccl_version() {
    int version = 0;
    return getters.ncclGetVersion != nullptr && getters.ncclGetVersion(&version) == ncclSuccess ? version : kRuntimeConnect;
}

bool is_switched_off(const char* variable) {
    const NcclValue found = find_nccl_value(variable);
    return found.given && strcmp(found.value, "0") == 0;
}

bool connects_at_once() {
    return nccl_version() < kRuntimeConnect || !gpu_maps_memory() || is_switched_off("NCCL_RUNTIME_CONNECT") ||
           is_switched_off("NCCL_CUMEM_ENABLE");
}

}  // namespace

bool nccl_connects_late() {
#define OPUS_CONNECTS_EARLY \
    "rings, trees and PAT are connected while a communicator is made, to more neighbours than there are ports"
    if (const int version = nccl_version(); version < kRuntimeConnect) {
        say_once(Level::error,
                 "NCCL %d.%d.%d cannot be served with circuits: " OPUS_CONNECTS_EARLY "; use 2.22.3 or newer",
                 version / 10000, version / 100 % 100, version % 100);
        return false;
    }
    if (gpu_maps_memory()) return true;
    say_once(Level::error,
             "this GPU, or its driver, has no virtual memory management (cuMem), so NCCL cannot be served with "
             "circuits: " OPUS_CONNECTS_EARLY "; use a GPU and a driver that have it");
    return false;
#undef OPUS_CONNECTS_EARLY
}

// graph/search.cc, ncclTopoGetNetDev: the NIC of the receiver's index is looked for where rings may not change NICs, too.
// init.cc, initTransportsRank: without P2P hosts are not joined to one node, unless that is asked for.
std::uint32_t nccl_ways() {
    const bool proxies = number_of("NCCL_PXN_DISABLE", 0) != 1 && number_of("NCCL_P2P_PXN_LEVEL", 2) != 0;
    const std::uint64_t joins = number_of("NCCL_MNNVL_ENABLE", 2);
    const bool apart = joins == 0 || (joins != 1 && number_of("NCCL_P2P_DISABLE", 0) == 1);
    return (proxies || never_crosses() ? 0 : ring::kWaysOwnNic) | (apart ? ring::kWaysOwnHost : 0) |
           (connects_at_once() ? ring::kWaysAtOnce : 0);
}

bool nccl_says(const char* name, bool configured) {
    const NcclValue found = find_nccl_value(name);
    return found.given && found.value[0] != '\0' ? found.value[0] != '0' : configured;
}

bool nccl_config_fits(const ncclConfig_t* config) {
    if (config == nullptr || config->size < offsetof(ncclConfig_t, collnetEnable) + sizeof(int)) return true;
    if (config->collnetEnable == NCCL_CONFIG_UNDEF_INT || config->collnetEnable == 0) return true;
    say_once(Level::error,
             "ncclConfig_t.collnetEnable=%d cannot be served with circuits: there are no packet switches to compute "
             "in; set it to 0",
             config->collnetEnable);
    return false;
}

}  // namespace opus::shim
