// SPDX-License-Identifier: Apache-2.0
#pragma once
// A JSON reader that forgives nothing: what it takes, every reader takes.

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::trace {

struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  double number = 0;
  std::string text;  // escapes but \" and \\ are left as they are
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  bool has(const std::string& key) const { return fields.contains(key); }
  const Json& operator[](const std::string& key) const {
    static const Json null;
    const auto it = fields.find(key);
    return it == fields.end() ? null : it->second;
  }
};

class JsonReader {
 public:
  static std::optional<Json> Parse(std::string_view text) {
    JsonReader reader(text);
    Json value;
    if (!reader.Value(&value)) return std::nullopt;
    reader.Space();
    if (reader.at_ != text.size()) return std::nullopt;
    return value;
  }

 private:
  explicit JsonReader(std::string_view text) : text_(text) {}

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void Space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool Take(std::string_view word) {
    Space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool Value(Json* out) {
    Space();
    if (Peek() == '{') return Object(out);
    if (Peek() == '[') return Array(out);
    if (Peek() == '"') {
      out->kind = Json::Kind::kString;
      return String(&out->text);
    }
    if (Take("true") || Take("false")) {
      out->kind = Json::Kind::kBool;
      return true;
    }
    if (Take("null")) return true;
    return Number(out);
  }
  bool Number(Json* out) {
    const size_t begin = at_;
    if (Peek() == '-') ++at_;
    if (Peek() == '0' && at_ + 1 < text_.size() && std::isdigit(text_[at_ + 1])) return false;
    const size_t digits = at_;
    while (std::isdigit(Peek())) ++at_;
    if (at_ == digits) return false;
    if (Peek() == '.') {
      const size_t fraction = ++at_;
      while (std::isdigit(Peek())) ++at_;
      if (at_ == fraction) return false;
    }
    out->kind = Json::Kind::kNumber;
    out->number = std::strtod(std::string(text_.substr(begin, at_ - begin)).c_str(), nullptr);
    return true;
  }
  bool String(std::string* out) {
    if (!Take("\"")) return false;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
      if (text_[at_] == '\\') {
        ++at_;
        if (std::string_view("\"\\/bfnrtu").find(Peek()) == std::string_view::npos || Peek() == '\0') return false;
        if (Peek() == 'u') {
          for (size_t i = 1; i <= 4; ++i) {
            if (at_ + i >= text_.size() || !std::isxdigit(text_[at_ + i])) return false;
          }
        }
        if (Peek() != '"' && Peek() != '\\') out->push_back('\\');
      }
      out->push_back(text_[at_++]);
    }
    return Take("\"");
  }
  bool Array(Json* out) {
    out->kind = Json::Kind::kArray;
    if (!Take("[")) return false;
    if (Take("]")) return true;
    do {
      if (!Value(&out->items.emplace_back())) return false;
    } while (Take(","));
    return Take("]");
  }
  bool Object(Json* out) {
    out->kind = Json::Kind::kObject;
    if (!Take("{")) return false;
    if (Take("}")) return true;
    do {
      std::string key;
      Space();
      if (!String(&key) || !Take(":") || out->fields.contains(key) || !Value(&out->fields[key])) return false;
    } while (Take(","));
    return Take("}");
  }

  std::string_view text_;
  size_t at_ = 0;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A folder that is gone after the test.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/hvd_trace_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hvd::trace
