// The build replaces the globals by these. Jest's jsdom has neither class, but it has Node's `process`.
const globals = globalThis as Partial<typeof globalThis>;
const { process } = globalThis as { process?: { getBuiltinModule?(id: "node:util"): typeof import("node:util") } };

const Encoder = globals.TextEncoder ?? process?.getBuiltinModule?.("node:util").TextEncoder;
const Decoder = globals.TextDecoder ?? process?.getBuiltinModule?.("node:util").TextDecoder;

export { Decoder as TextDecoder, Encoder as TextEncoder };
