/** Warns where the runtime can, because whoever starts the program has to see it, too. */
export function warn(message: string): void {
  const { process } = globalThis as { process?: { emitWarning?(message: string, type: string): void } };
  process?.emitWarning?.(message, "LeaseholdWarning");
}
