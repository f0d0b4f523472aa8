#include "tools/opus-sim/sweep_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>

#include "controller/fabric/spelling.h"

namespace opus::job {
namespace {

// Of a whole sweep, not of a point.
constexpr std::string_view kOthers[] = {"help", "log", "trace", "at-once", "prices"};

enum class Command : std::uint8_t { generate, read, run };

// A command's arguments, and where they go.
struct Arguments {
    explicit Arguments(Command command) : command(command) {
        if (command == Command::generate) model_arguments(app, model);
        if (command == Command::read) read_arguments(app, files, read);
        if (command == Command::run) run_arguments(app, run), show_arguments(app, show);
        run.answers = false;  // a table has no use for them
    }

    CLI::Option* find(const std::string& key) {
        for (const std::string_view other : kOthers)
            if (key == other) return nullptr;
        for (CLI::Option* option : app.get_options())
            if (const auto& names = option->get_lnames();
                std::find(names.begin(), names.end(), key) != names.end() && !key.starts_with("no-"))
                return option;
        return nullptr;
    }

    std::vector<std::string> known() const {
        std::vector<std::string> all;
        if (command != Command::run) all = {"files", "model"};
        for (const CLI::Option* option : app.get_options())
            for (const std::string& name : option->get_lnames())
                if (!name.starts_with("no-") && std::count(std::begin(kOthers), std::end(kOthers), name) == 0)
                    all.push_back(name);
        return all;
    }

    // Its words on a command line. The option must be known.
    std::vector<std::string> words_of(const std::string& key, const SweepValue& value) {
        if (!value.flag) {
            std::vector<std::string> words;
            for (const std::string& word : value.words) words.push_back("--" + key + "=" + word);
            return words;
        }
        if (value.words.front() == "true") return {"--" + key};
        const auto& names = find(key)->get_lnames();
        if (std::find(names.begin(), names.end(), "no-" + key) == names.end()) return {};  // as when it is not said
        return {"--no-" + key};
    }

    // Throws CLI::ParseError.
    void parse(std::vector<std::string> words) {
        std::reverse(words.begin(), words.end());  // as it wants them
        app.parse(std::move(words));
    }

    Command command;
    CLI::App app;
    ModelOptions model;
    ReadOptions read;
    RunOptions run;
    ShowOptions show;
    std::vector<std::string> files;
};

const char* name_of(Command command) {
    switch (command) {
        case Command::generate: return "generate";
        case Command::read: return "read";
        case Command::run: return "run";
    }
    return "";
}

bool names_job(const SweepKey& key) { return key.table == "job" && (key.key == "files" || key.key == "model"); }

class Checker {
public:
    Checker(const SweepFile& sweep, Command job) : sweep_(sweep), job_(job) {}

    void check(const SweepKey& key) const {
        const Command command = key.table == "run" ? Command::run : job_;
        if (!names_job(key)) check_name(key, command);
        for (const SweepValue& value : key.values) {
            if (names_job(key) && value.flag) fail(key, "must be text");
            if (key.key == "model" && names_job(key) && value.words.size() > 1) fail(key, "a job is of one model");
            Arguments arguments(command);  // a fresh one each: some options gather what they are given
            std::vector<std::string> words;
            if (command != Command::run) words.push_back(command == Command::read ? "files" : models().front().name);
            if (names_job(key)) {
                words = value.words;
            } else {
                const std::vector<std::string> own = arguments.words_of(key.key, value);
                words.insert(words.end(), own.begin(), own.end());
            }
            try {
                arguments.parse(words);
            } catch (const CLI::ParseError& error) {
                fail(key, value.text() + ": " + error.what() + " (opus-sim " + name_of(command) +
                              " --help says what it takes)");
            }
        }
    }

private:
    const SweepFile& sweep_;
    Command job_;

    [[noreturn]] void fail(const SweepKey& key, const std::string& text) const {
        throw BadFile(sweep_.path, key.line, key.table + ": " + key.key + ": " + text);
    }

    void check_name(const SweepKey& key, Command command) const {
        Arguments arguments(command);
        CLI::Option* const option = arguments.find(key.key);
        if (option == nullptr)
            throw BadFile(sweep_.path, key.line,
                          key.table + ": '" + key.key + "' is no option of opus-sim " + name_of(command) +
                              " that a point can have" + fabric::suggestion(key.key, arguments.known()));
        const bool flag = option->get_expected_max() == 0;
        for (const SweepValue& value : key.values)
            if (flag != value.flag)
                fail(key, value.text() + (flag ? ": it must be true or false" : ": it takes a value, not true or false"));
    }
};

}  // namespace

void check_options(const SweepFile& sweep) {
    const SweepKey *files = nullptr, *model = nullptr;
    for (const SweepKey& key : sweep.keys)
        if (names_job(key)) (key.key == "files" ? files : model) = &key;
    if (files != nullptr && model != nullptr)
        throw BadFile(sweep.path, std::max(files->line, model->line), "job: it has files and a model: leave one out");
    if (files == nullptr && model == nullptr)
        throw BadFile(sweep.path, "", "it names no job: [job], then files = or model =");
    const Checker checker(sweep, files != nullptr ? Command::read : Command::generate);
    for (const SweepKey& key : sweep.keys) checker.check(key);
}

PointOptions options_of(const SweepPoint& point, const std::string& folder) {
    PointOptions options;
    std::string model;
    std::vector<std::string> named;
    for (const auto& [key, value] : point.job)
        if (key == "model")
            model = value.words.front();
        else if (key == "files")
            named = value.words;
    Arguments job(model.empty() ? Command::read : Command::generate), run(Command::run);
    options.job_words = model.empty() ? named : std::vector<std::string>{model};
    const auto add = [](Arguments& to, const std::string& key, const SweepValue& value, std::vector<std::string>& words) {
        const std::vector<std::string> own = to.words_of(key, value);
        words.insert(words.end(), own.begin(), own.end());
    };
    // By their names: a point is the same in whatever order its file has them.
    const std::map<std::string, SweepValue> of_job(point.job.begin(), point.job.end()),
        of_run(point.run.begin(), point.run.end());
    for (const auto& [key, value] : of_job)
        if (key != "model" && key != "files") add(job, key, value, options.job_words);
    for (const auto& [key, value] : of_run) add(run, key, value, options.run_words);
    job.parse(options.job_words), run.parse(options.run_words);
    for (const std::string& name : named) options.files.push_back((std::filesystem::path(folder) / name).string());
    if (!model.empty()) options.model = job.model;
    options.read = job.read, options.run = run.run, options.accept = run.show.accept,
    options.generation = run.show.generation;
    return options;
}

}  // namespace opus::job
