local asked = sub(op, OP_TTL, OP_REST - 1)
if asked ~= ttl then
  ttl = asked
  expires = now_ms + ttl
  expires_digits = tostring(expires)
end
