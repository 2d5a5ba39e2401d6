// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/seal.h"

#include <utility>

namespace hvd::transport {
namespace {

net::Bytes AsOctets(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<std::unique_ptr<Seal>> Seal::Create(const net::Key& session, bool connects) {
  HVD_ASSIGN_OR_RETURN(const net::Key forth, net::DeriveKey(session.bytes, "control forth", 0));
  HVD_ASSIGN_OR_RETURN(const net::Key back, net::DeriveKey(session.bytes, "control back", 0));
  HVD_ASSIGN_OR_RETURN(net::Gmac sends, net::Gmac::Create(connects ? forth : back));
  HVD_ASSIGN_OR_RETURN(net::Gmac takes, net::Gmac::Create(connects ? back : forth));
  return std::unique_ptr<Seal>(new Seal(std::move(sends), std::move(takes)));
}

Result<net::Gmac::Tag> Seal::Close(FrameType type, std::span<const std::byte> payload) {
  return sends_.Make(sent_++, static_cast<uint8_t>(type), AsOctets(payload));
}

Result<std::span<const std::byte>> Seal::Open(FrameType type, std::span<const std::byte> sealed) {
  if (sealed.size() >= kSealBytes) {
    const auto payload = sealed.first(sealed.size() - kSealBytes);
    HVD_ASSIGN_OR_RETURN(const net::Gmac::Tag wanted,
                         takes_.Make(taken_++, static_cast<uint8_t>(type), AsOctets(payload)));
    if (net::ConstantTimeEqual(wanted, AsOctets(sealed.last(kSealBytes)))) return payload;
  }
  return Fail(Code::kPermissionDenied,
              "a control message was changed on its way: somebody on the network between the hosts does that; set "
              "HOROVOD_ENCRYPT=1");
}

}  // namespace hvd::transport
