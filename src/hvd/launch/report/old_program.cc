// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/old_program.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "old_names.h"

namespace hvd::launch {
namespace {

// Where the program failed, and how.
struct Failure {
  std::string error;   // "AttributeError: ..."
  std::string script;  // of the innermost line that Python shows
  std::string line;    // that line
};

// What the text of an error says, and what to write then.
struct Rule {
  std::string_view error;
  std::string_view suggestion;
};

constexpr std::string_view kKeras2 =
    "the line needs Keras 2: pip install tf_keras, and set TF_USE_LEGACY_KERAS=1 or run it with --compat tf1";
constexpr std::string_view kGraphs =
    "the program is for graphs and sessions: write tf.compat.v1.disable_v2_behavior() after the import of tensorflow";

constexpr std::string_view kIpu = "this TensorFlow is not Graphcore's: write from horovod.tensorflow import ipu";

constexpr std::array kRules{
    Rule{"not compatible with eager execution", kGraphs},
    Rule{"not supported when eager execution is enabled", kGraphs},
    Rule{"should be a function when eager execution is enabled", kGraphs},
    Rule{"The Session graph is empty", kGraphs},
    Rule{"is not available with Keras 3", kKeras2},
    Rule{"keras.backend' has no attribute 'set_session'", kKeras2},
    Rule{"keras.backend' has no attribute 'get_session'", kKeras2},
    Rule{"cannot import name 'ipu' from 'tensorflow.python'", kIpu},
    Rule{"No module named 'tensorflow.python.ipu", kIpu},
    Rule{"No module named 'tensorflow.contrib", "TensorFlow has no contrib any more: write what replaces it"},
    Rule{"No module named 'tensorflow.examples", "TensorFlow has no examples any more: write keras.datasets"},
    Rule{"Missing parentheses in call to 'print'", "the program is for Python 2: translate it by 2to3 first"},
};

// What bridges make work where they are built: HOROVOD_COMPAT=0 leaves them out.
constexpr std::array kBridged{
    Rule{"unexpected keyword argument 'experimental_run_tf_function'", "compile(...) without it"},
    Rule{"has no attribute 'lr'", "optimizer.learning_rate"},
    Rule{"not recognized: {'lr'", "learning_rate=..."},
    Rule{"has no attribute 'get_scaled_loss'", "scale_loss(...)"},
    Rule{"has no attribute 'get_unscaled_gradients'", "nothing in its place: apply_gradients takes scaled gradients"},
    Rule{"has no attribute 'fit_generator'", "fit(...)"},
    Rule{"cannot import name 'ImageDataGenerator'",
         "from tensorflow.keras.preprocessing.image import ImageDataGenerator"},
    Rule{"No module named 'keras.utils.np_utils'", "from keras import utils as np_utils"},
};

const std::map<std::string, std::set<std::string>>& OldNames() {
  static const auto* const kNames = [] {
    auto* names = new std::map<std::string, std::set<std::string>>;
    std::istringstream words(kOldNames);
    std::string module;
    for (std::string word; words >> word;) {
      if (word.ends_with(':')) {
        module = word.substr(0, word.size() - 1);
      } else {
        (*names)[module].insert(word);
      }
    }
    return names;
  }();
  return *kNames;
}

std::string_view Trimmed(std::string_view line) {
  const size_t from = line.find_first_not_of(' ');
  return from == std::string_view::npos ? std::string_view() : line.substr(from);
}

Failure ReadFailure(const std::vector<std::string>& lines) {
  constexpr std::string_view kFile = "  File \"";
  Failure failure;
  bool next_is_code = false;
  for (const std::string& line : lines) {
    if (line.starts_with("Traceback (most recent call last)")) {
      failure = {};
    } else if (line.starts_with(kFile)) {
      failure.script = line.substr(kFile.size(), line.find('"', kFile.size()) - kFile.size());
      next_is_code = true;
    } else if (next_is_code) {
      failure.line = Trimmed(line);
      next_is_code = false;
    } else if (!line.starts_with(' ') && line.find("Error: ") != std::string::npos) {
      failure.error = line;
    }
  }
  return failure;
}

std::string_view Between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t found = text.find(before);
  if (found == std::string_view::npos) return {};
  const size_t begin = found + before.size();
  const size_t end = text.find(after, begin);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin);
}

// "tensorflow.train" of "tensorflow._api.v2.train" and the like.
std::string PublicName(std::string_view module) {
  std::string name(module);
  if (const size_t api = name.find("._api.v2"); api != std::string::npos)
    name.erase(api, std::string_view("._api.v2").size());
  return name;
}

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// The line with compat.v1 where it belongs: in `tf.train.NAME` behind `tf`. As it is where it holds no such name.
std::string WithV1(std::string line, std::string_view name) {
  const size_t at = line.find(fmt::format(".{}", name));
  if (at == std::string::npos) return line;
  size_t begin = at;
  while (begin > 0 && IsOfName(line[begin - 1])) --begin;
  return line.insert(line.find('.', begin), ".compat.v1");
}

std::optional<std::string> ForName(const Failure& failure) {
  const std::string module = PublicName(Between(failure.error, "module '", "'"));
  const std::string name(Between(failure.error, "has no attribute '", "'"));
  const bool is_top = module == "tensorflow" || module == "tensorflow.compat.v1";
  if (is_top && (name == "contrib" || name == "estimator")) {
    return name == "contrib"
               ? "TensorFlow has no contrib any more: write what replaces it"
               : "TensorFlow has no tf.estimator any more: write from horovod.tensorflow import estimator";
  }
  const auto names = OldNames().find(module);
  if (names == OldNames().end() || !names->second.contains(name)) return std::nullopt;
  if (module.starts_with("keras")) return fmt::format("write tensorflow.{}.{}", module, name);
  return fmt::format("write {}   or run it with --compat tf1", WithV1(failure.line, name));
}

std::optional<std::string> ForError(const Failure& failure) {
  if (failure.error.find("'list' object is not callable") != std::string::npos) {
    std::string line = failure.line;
    const size_t at = line.find(".variables()");
    if (at == std::string::npos) return std::nullopt;
    return fmt::format("write {}", line.erase(at + std::string_view(".variables").size(), 2));
  }
  for (const Rule& rule : kBridged) {
    if (failure.error.find(rule.error) != std::string::npos) return fmt::format("write {}", rule.suggestion);
  }
  for (const Rule& rule : kRules) {
    if (failure.error.find(rule.error) == std::string::npos) continue;
    return fmt::format("{}{}", rule.suggestion, rule.suggestion == kGraphs ? ", or run it with --compat tf1" : "");
  }
  return ForName(failure);
}

}  // namespace

std::optional<std::string> SuggestForOldProgram(const std::vector<std::string>& last_lines) {
  const Failure failure = ReadFailure(last_lines);
  if (failure.error.empty()) return std::nullopt;
  const auto suggestion = ForError(failure);
  if (!suggestion) return std::nullopt;
  return fmt::format("{}; python -m horovod.compat {} lists all such lines", *suggestion,
                     failure.script.empty() ? "SCRIPT" : failure.script);
}

}  // namespace hvd::launch
