#include "tools/run/files.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

namespace opus::run {

namespace {

std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    const std::string self(path, n > 0 ? static_cast<std::size_t>(n) : 0);
    return self.substr(0, self.rfind('/'));
}

std::string first_of(const std::vector<std::string>& places, int mode) {
    for (const std::string& place : places) {
        char whole[PATH_MAX];
        const std::string path = own_folder() + place;
        if (access(path.c_str(), mode) == 0 && realpath(path.c_str(), whole) != nullptr) return whole;
    }
    return {};
}

std::string on_path(const std::string& program) {
    if (program.find('/') != std::string::npos) return program;
    const char* path = getenv("PATH");
    const std::string all = path != nullptr ? path : "/usr/bin:/bin";
    for (std::size_t at = 0; at <= all.size();) {
        const std::size_t end = std::min(all.find(':', at), all.size());
        const std::string place = (end == at ? "." : all.substr(at, end - at)) + "/" + program;
        if (access(place.c_str(), X_OK) == 0) return place;
        at = end + 1;
    }
    return {};
}

// The program that the loader names in an ELF file: empty where it is static.
std::string loader_of(std::ifstream& file) {
    Elf64_Ehdr head{};
    file.seekg(0);
    if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || head.e_ident[EI_CLASS] != ELFCLASS64) return "?";
    for (unsigned i = 0; i < head.e_phnum; ++i) {
        Elf64_Phdr part{};
        file.seekg(std::streamoff(head.e_phoff + std::size_t(i) * head.e_phentsize));
        if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) return "?";
        if (part.p_type != PT_INTERP || part.p_filesz > PATH_MAX) continue;
        std::string loader(part.p_filesz, '\0');
        file.seekg(std::streamoff(part.p_offset));
        file.read(loader.data(), std::streamsize(loader.size()));
        return loader.c_str();
    }
    return {};
}

}  // namespace

std::string find_shim() {
    const char* name = "/libopus_shim.so";
    return first_of(
        {name, std::string("/../" OPUS_LIBDIR) + name, std::string("/../lib") + name, std::string("/../../shim") + name},
        R_OK);
}

std::string find_emulation() {
    const char* name = "/opus/emulation/opus-emulate";
    return first_of({std::string("/../" OPUS_LIBDIR) + name, std::string("/../lib") + name,
                     "/../emulation/opus-emulate", "/../../../tools/emulation/opus-emulate"},
                    X_OK);
}

std::string find_observer() { return first_of({"/opus-observer", "/../../manager/observer/opus-observer"}, X_OK); }

std::string unreachable(const std::string& program) {
    std::string path = on_path(program);
    // A script is run by its interpreter, which may be a script.
    for (int turn = 0; turn < 4 && !path.empty(); ++turn) {
        std::ifstream file(path, std::ios::binary);
        char magic[SELFMAG] = {};
        if (!file.read(magic, sizeof magic)) return {};  // nothing is known of it
        struct stat of {};
        if (stat(path.c_str(), &of) == 0 && (of.st_mode & (S_ISUID | S_ISGID)) != 0 && getuid() != 0)
            return path + " is setuid: the loader preloads nothing into it";
        if (memcmp(magic, "#!", 2) == 0) {
            std::string line;
            file.seekg(2);
            std::getline(file, line);
            const std::size_t from = line.find_first_not_of(" \t");
            if (from == std::string::npos) return {};
            path = line.substr(from, line.find_first_of(" \t", from) - from);
            continue;
        }
        if (memcmp(magic, ELFMAG, SELFMAG) != 0) return {};
        const std::string loader = loader_of(file);
        if (loader.empty()) return path + " is linked statically: nothing can be preloaded into it";
        if (loader.find("musl") != std::string::npos) return path + " is made for musl: the shim is made for glibc";
        return {};
    }
    return {};
}

}  // namespace opus::run
