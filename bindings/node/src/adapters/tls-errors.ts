/** Returns the meaning of a TLS error, by its Node or OpenSSL code; nothing if it is not about trust. */
export function tlsErrorMeaning(code: string, message: string): string | undefined {
  const known = MEANINGS.find(([codes]) => codes.test(code));
  return known?.[1].replace("$&", () => message);
}

const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [/^CERT_HAS_EXPIRED$/, "the server's certificate has expired; renew it there, or set this machine's clock"],
  [/^CERT_NOT_YET_VALID$/, "the server's certificate is not valid yet; set this machine's clock, or the server's"],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    "the server's certificate is of another name ($&); connect by a name that is in it, or give one as serverName",
  ],
  [
    /^DEPTH_ZERO_SELF_SIGNED_CERT$/,
    "the server's certificate is self-signed and not trusted; give its file as ca",
  ],
  [
    /^(SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT(_LOCALLY)?))$/,
    "the server's certificate is signed by a CA that is not trusted; give that CA's file as ca",
  ],
  [/^INVALID_PURPOSE$/, "the server's certificate is not valid for servers; it needs the extended key usage serverAuth"],
  [/^CERT_|^INVALID_CA$|^UNABLE_TO_/, "the server's certificate cannot be trusted ($&)"],
  [/ALERT_CERTIFICATE_REQUIRED|ALERT_HANDSHAKE_FAILURE|ALERT_NUMBER_(116|40)$/, "the server wants a client certificate; give cert and key"],
  [
    /ALERT_UNKNOWN_CA|ALERT_NUMBER_48$/,
    "the server refused the client certificate, because it does not trust the CA that signed it; give one from a CA that the server trusts",
  ],
  [/ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|DECRYPT_ERROR|ACCESS_DENIED)/, "the server refused the client certificate ($&)"],
];
