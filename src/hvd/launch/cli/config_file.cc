// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "hvd/base/suggest.h"
#include "hvd/launch/cli/flags.h"

namespace hvd::launch {
namespace {

class ConfigReader {
 public:
  ConfigReader(std::string_view path, Options* options) : path_(path), options_(options) {}

  Status Document(const YAML::Node& root) {
    if (root.IsNull()) return {};
    if (!root.IsMap()) return Bad(root, "expected keys such as 'params:'");
    for (const auto& entry : root) {
      HVD_ASSIGN_OR_RETURN(const std::string name, Name(entry.first));
      if (!seen_.insert(name).second) return Bad(entry.first, fmt::format("{} stands here twice", name));
      if (FindKey(name) != nullptr) {
        HVD_RETURN_IF_ERROR(Value(name, entry.first, entry.second));
        continue;
      }
      HVD_RETURN_IF_ERROR(Section(name, entry.first, entry.second));
    }
    return {};
  }

 private:
  Status Section(const std::string& name, const YAML::Node& at, const YAML::Node& section) {
    std::set<std::string> sections;
    for (const std::string& key : Keys()) sections.insert(key.substr(0, key.find('.')));
    if (!sections.contains(name)) {
      return Bad(at, fmt::format("unknown key {}{}", name, DidYouMean(name, {sections.begin(), sections.end()})));
    }
    if (section.IsNull()) return {};
    if (!section.IsMap()) return Bad(section, fmt::format("expected keys below {}:", name));
    for (const auto& entry : section) {
      HVD_ASSIGN_OR_RETURN(const std::string last, Name(entry.first));
      const std::string key = name + "." + last;
      if (!seen_.insert(key).second) return Bad(entry.first, fmt::format("{} stands here twice", key));
      if (FindKey(key) == nullptr)
        return Bad(entry.first, fmt::format("unknown key {}{}", key, DidYouMean(key, Keys())));
      HVD_RETURN_IF_ERROR(Value(key, entry.first, entry.second));
    }
    return {};
  }

  Status Value(const std::string& key, const YAML::Node& at, const YAML::Node& value) {
    if (value.IsNull()) return {};
    if (!value.IsScalar()) return Bad(at, fmt::format("{}: expected a single value", key));
    return Assign(*FindKey(key), fmt::format("{}{}:", Where(at), key), value.Scalar(), options_);
  }

  Result<std::string> Name(const YAML::Node& key) const {
    if (!key.IsScalar()) return Bad(key, "expected a name as key");
    return key.Scalar();
  }

  std::string Where(const YAML::Node& node) const { return fmt::format("{}:{}: ", path_, node.Mark().line + 1); }
  tl::unexpected<Error> Bad(const YAML::Node& node, std::string_view what) const {
    return Fail(Code::kInvalidArgument, "{}{}", Where(node), what);
  }

  std::string_view path_;
  Options* options_;
  std::set<std::string> seen_;
};

}  // namespace

Status ReadConfig(const std::string& text, std::string_view path, Options* options) {
  // The parser throws; nothing of it leaves this function.
  try {
    return ConfigReader(path, options).Document(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return Fail(Code::kInvalidArgument, "{}:{}: not valid YAML: {}", path, error.mark.line + 1, error.msg);
  }
}

}  // namespace hvd::launch
