// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/file/name.h"

#include "hvd/net/crypto.h"

namespace hvd::rendezvous::file {
namespace {

constexpr size_t kLongestReadable = 200;

bool Usual(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

Result<std::string> FileName(const std::string& key) {
  std::string name = "k-";
  for (const char c : key) {
    if (Usual(c)) {
      name.push_back(c);
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() <= kLongestReadable) return name;
  HVD_ASSIGN_OR_RETURN(const net::Digest digest, net::Sha256(net::AsBytes(key)));
  return "h-" + net::ToHex(digest);
}

}  // namespace hvd::rendezvous::file
