// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

#include "hvd/net/crypto.h"
#include "hvd/net/socket.h"
#include "hvd/net/tls_bio.h"

namespace hvd::net {
namespace {

constexpr std::string_view kIdentity = "hvd";
constexpr uint8_t kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256: the key's hash must be the cipher's.
constexpr const char* kDenied = "the other side has another job token (HOROVOD_TOKEN_FILE), or none";

const TlsContext* ContextOf(SSL* ssl) { return static_cast<const TlsContext*>(SSL_get_app_data(ssl)); }

SSL_SESSION* NewSession(SSL* ssl) {
  const Key& key = ContextOf(ssl)->key();
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  if (cipher != nullptr && SSL_SESSION_set1_master_key(session, key.bytes.data(), key.bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int OfferKey(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, size_t* length, SSL_SESSION** session) {
  *session = nullptr;
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *length = kIdentity.size();
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 0;
  *session = NewSession(ssl);
  return *session != nullptr;
}

int FindKey(SSL* ssl, const unsigned char* identity, size_t length, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), length) != kIdentity) return 1;
  *session = NewSession(ssl);
  return *session != nullptr;
}

bool Configure(SSL_CTX* context, TlsSide side) {
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // An end without close_notify is an end: who closes early is the frame protocol's business.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  if (side == TlsSide::kClient) {
    SSL_CTX_set_psk_use_session_callback(context, &OfferKey);
    // Nobody is trusted by certificate, so a server that offers one instead of the key fails.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  } else {
    // There is no certificate: a client that does not have the key finds nothing to agree on.
    SSL_CTX_set_psk_find_session_callback(context, &FindKey);
  }
  return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
         SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1;
}

std::string OpenSslText() {
  char text[256] = "unknown TLS failure";
  if (const unsigned long error = ERR_peek_last_error(); error != 0) ERR_error_string_n(error, text, sizeof(text));
  return text;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Create(TlsSide side, const Token& token, std::string_view role,
                                                       uint64_t generation) {
  InitCrypto();
  HVD_ASSIGN_OR_RETURN(const Key key, DeriveKey(token.bytes(), "tls " + std::string(role), generation));
  SSL_CTX* raw = SSL_CTX_new(side == TlsSide::kClient ? TLS_client_method() : TLS_server_method());
  if (raw == nullptr) return Fail(Code::kInternal, "no TLS context: {}", OpenSslText());
  std::shared_ptr<TlsContext> context(new TlsContext(side, raw, key));
  if (!Configure(raw, side)) return Fail(Code::kInternal, "TLS cannot be set up: {}", OpenSslText());
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsStream>> TlsStream::Create(std::shared_ptr<TlsContext> context, Fd fd) {
  ERR_clear_error();
  SSL* ssl = SSL_new(context->get());
  if (ssl == nullptr) return Fail(Code::kInternal, "no TLS stream: {}", OpenSslText());
  const TlsSide side = context->side();
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(context), ssl, std::move(fd)));
  BIO* bio = NewSocketBio(stream->fd());
  if (bio == nullptr) return Fail(Code::kInternal, "no TLS stream: {}", OpenSslText());
  SSL_set_bio(ssl, bio, bio);
  SSL_set_app_data(ssl, stream->context_.get());
  if (side == TlsSide::kClient) {
    SSL_set_connect_state(ssl);
  } else {
    SSL_set_accept_state(ssl);
  }
  return stream;
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

Result<Transfer> TlsStream::Explain(int returned, int saved_errno) {
  switch (SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ:
      return Transfer{.want = Want::kRead};
    case SSL_ERROR_WANT_WRITE:
      return Transfer{.want = Want::kWrite};
    case SSL_ERROR_ZERO_RETURN:
      return Transfer{.end = true};
    case SSL_ERROR_SYSCALL:
      if (saved_errno == 0 || saved_errno == ECONNRESET || saved_errno == EPIPE) return Transfer{.end = true};
      return Fail(Code::kUnknown, "the connection failed: {}", ErrnoText(saved_errno));
    default:
      break;
  }
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  std::string text = OpenSslText();
  ERR_clear_error();
  if (ready_) return Fail(Code::kUnknown, "the TLS connection failed: {}", text);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_UNEXPECTED_MESSAGE ||
      reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_UNSUPPORTED_PROTOCOL) {
    return Fail(
        Code::kFailedPrecondition,
        "the other side does not speak TLS 1.3: it has no job token (HOROVOD_TOKEN_FILE), or is another program");
  }
  return Fail(Code::kPermissionDenied, "{} ({})", kDenied, text);
}

Result<Want> TlsStream::TryHandshake() {
  if (ready_) return Want::kNothing;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(ssl_);
  const int saved_errno = errno;
  if (returned == 1) {
    // An external key counts as a resumed session; anything else would be a peer authenticated by something else.
    if (SSL_session_reused(ssl_) != 1) return Fail(Code::kPermissionDenied, "{}", kDenied);
    ready_ = true;
    return Want::kNothing;
  }
  HVD_ASSIGN_OR_RETURN(const Transfer state, Explain(returned, saved_errno));
  if (state.end)
    return Fail(Code::kUnknown,
                "the other side closed the connection during the TLS handshake; does it have a job token, too?");
  return state.want;
}

Result<Transfer> TlsStream::TryRead(MutableBytes into) {
  if (into.empty()) return Transfer{};
  ERR_clear_error();
  errno = 0;
  size_t count = 0;
  const int returned = SSL_read_ex(ssl_, into.data(), into.size(), &count);
  if (returned == 1) return Transfer{.bytes = count};
  return Explain(returned, errno);
}

Result<Transfer> TlsStream::TryWrite(Bytes data) {
  if (data.empty()) return Transfer{};
  ERR_clear_error();
  errno = 0;
  size_t count = 0;
  const int returned = SSL_write_ex(ssl_, data.data(), data.size(), &count);
  if (returned == 1) return Transfer{.bytes = count};
  return Explain(returned, errno);
}

}  // namespace hvd::net
