// A controller process of a test's own, on a port that the kernel picks, with a small fabric whose
// switches nobody serves.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "child.h"
#include "controller/fabric/fabric_make.h"

namespace opus::test {

inline std::string program(const char* variable) {
    const char* path = std::getenv(variable);
    if (!path) throw std::runtime_error(std::string("set ") + variable);
    return path;
}

class Scratch {
public:
    Scratch() {
        std::string pattern = (std::filesystem::temp_directory_path() / "controller-test-XXXXXX").string();
        if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
        path_ = pattern;
    }
    ~Scratch() {
        std::error_code unused;
        std::filesystem::remove_all(path_, unused);
    }
    std::string file(const std::string& name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

inline std::string write_fabric(const std::string& path, std::uint32_t nodes = 2) {
    fabric::FabricPlan plan;
    plan.nodes = nodes;
    plan.gpus = 2;
    plan.addresses = {"127.0.0.1:1", "127.0.0.1:2"};  // nobody listens there
    std::ofstream(path) << std::get<fabric::FabricText>(fabric::make_fabric(plan)).toml;
    return path;
}

struct Controller {
    Scratch scratch;
    Child child;
    std::string address;

    explicit Controller(std::vector<std::string> more = {}, std::uint32_t nodes = 2)
        : child(command(scratch, std::move(more), nodes)), address(child.ready("controller")) {}

    static std::vector<std::string> command(const Scratch& scratch, std::vector<std::string> more, std::uint32_t nodes = 2) {
        std::vector<std::string> words = {program("OPUS_TEST_CONTROLLER"), "--fabric",
                                          write_fabric(scratch.file("fabric.toml"), nodes), "--bind", "tcp://127.0.0.1:0"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
};

}  // namespace opus::test
