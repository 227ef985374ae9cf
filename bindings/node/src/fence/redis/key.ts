const SLOTS = 16_384;

/**
 * Returns the key of a resource's fence: `{tag}:fence:resource`, or `{resource}:fence` if the whole resource
 * is the tag.
 *
 * The tag puts the fence on the cluster slot of a key with the resource's name. Rust uses the same keys
 * (`core/src/fence/redis/key.rs`), so writers in both languages fence each other.
 */
export function fenceKey(resource: string): string {
  const tag = hashTag(resource);
  if (tag !== undefined) {
    return `{${tag}}:fence:${resource}`;
  }
  if (!resource.includes("}")) {
    return `{${resource}}:fence`;
  }
  // Redis hashes such a name as a whole, but a name with a `}` cannot be a tag.
  return `{${numberOnSlot(slotOf(resource))}}:fence:${resource}`;
}

/** Returns the cluster slot of a key. */
export function slotOf(key: string): number {
  return new TextEncoder().encode(hashTag(key) ?? key).reduce(crc16Step, 0) % SLOTS;
}

/**
 * Returns the part of a key that Redis hashes instead of the whole key: from the first `{` to the first `}`
 * after it, if there is something between them.
 */
function hashTag(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = open < 0 ? -1 : key.indexOf("}", open + 1);
  return close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** Returns the smallest number that, as a key, is on the slot. */
function numberOnSlot(slot: number): number {
  numbers ??= smallestNumbers();
  return numbers[slot] as number;
}

/** The smallest number of each slot. One search finds them all, when the first is needed. */
let numbers: Uint32Array | undefined;

/**
 * Finds the smallest number of every slot; all are below 2^17. A number's hash is one step from the hash of
 * all its digits except the last.
 */
function smallestNumbers(): Uint32Array {
  const hashes = new Uint16Array(2 ** 17);
  const found = new Uint32Array(SLOTS);
  hashes.forEach((_, number) => {
    const before = number < 10 ? 0 : (hashes[Math.floor(number / 10)] as number);
    hashes[number] = crc16Step(before, 48 + (number % 10));
  });
  // Downwards, so that the smallest number stays.
  for (let number = hashes.length - 1; number >= 0; number -= 1) {
    found[(hashes[number] as number) % SLOTS] = number;
  }
  return found;
}

/** Does one step of CRC-16/XMODEM, which the cluster specification uses. */
function crc16Step(crc: number, byte: number): number {
  return ((crc << 8) & 0xffff) ^ (TABLE[(crc >> 8) ^ byte] ?? 0);
}

/** The part of a step that depends on one byte alone. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) {
    crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc;
});
