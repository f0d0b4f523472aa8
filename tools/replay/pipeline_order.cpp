#include "tools/replay/pipeline_order.h"

#include <algorithm>

namespace opus::replay {

std::vector<Pass> one_forward_one_backward(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches) {
    return interleaved(stages, stage, micro_batches, 1);
}

std::vector<Pass> interleaved(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches, std::uint32_t chunks) {
    const std::uint32_t total = micro_batches * chunks, group = stages * chunks;
    const auto nth = [&](PassKind kind, std::uint32_t k) {
        if (chunks == 1) return Pass{kind, k, 0};
        const std::uint32_t chunk = k % group / stages;
        return Pass{kind, k / group * stages + k % stages, kind == PassKind::forward ? chunk : chunks - 1 - chunk};
    };
    const std::uint32_t behind = stages - 1 - stage;
    const std::uint32_t warm = std::min(total, chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages);
    std::vector<Pass> order;
    std::uint32_t f = 0, b = 0;
    while (f < warm) order.push_back(nth(PassKind::forward, f++));
    while (f < total) {
        order.push_back(nth(PassKind::forward, f++));
        order.push_back(nth(PassKind::backward, b++));
    }
    while (b < total) order.push_back(nth(PassKind::backward, b++));
    return order;
}

std::vector<Pass> zero_bubble(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches) {
    std::vector<Pass> order;
    std::uint32_t weights = 0;
    for (const Pass& pass : one_forward_one_backward(stages, stage, micro_batches)) {
        order.push_back(pass);
        if (pass.kind == PassKind::backward && pass.micro_batch >= stage)
            order.push_back({PassKind::weights, weights++, 0});
    }
    while (weights < micro_batches) order.push_back({PassKind::weights, weights++, 0});
    return order;
}

}  // namespace opus::replay
