import { spawn } from "node:child_process";
import { constants } from "node:os";
import { keepAliveClock } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";
import type { CommandIo } from "../output/command-io.ts";

/** How long a command may take to end after SIGTERM when its lock is lost, in milliseconds: another process has the lock. */
const killAfterMs = 5_000;

/**
 * Runs a command with the terminal of this process. It gets SIGTERM at an interrupt and when `held` is aborted, and SIGKILL at a second
 * interrupt and if it still runs some seconds after the loss. Resolves to its exit code, 128 and the signal's number if a
 * signal ended it. Rejects with INVALID_REQUEST if it can't be started.
 */
export async function runLocked(
  io: CommandIo,
  [program = "", ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
  held: AbortSignal,
): Promise<number> {
  const child = spawn(program, args, { stdio: "inherit", env: { ...process.env, ...env } });
  const kill = (): boolean => child.kill("SIGKILL");
  const interrupted = (signal: NodeJS.Signals): void => {
    child.kill(signal);
    // This process must not end before the command.
    stopListening = io.onInterrupt(() => interrupted("SIGKILL"));
  };
  let stopListening = io.onInterrupt(() => interrupted("SIGTERM"));
  let timer: { cancel(): void } | undefined;
  const lost = (): void => {
    child.kill("SIGTERM");
    timer = keepAliveClock.setTimeout(kill, killAfterMs);
  };
  if (held.aborted) lost();
  else held.addEventListener("abort", lost);
  try {
    return await new Promise((resolve, reject) => {
      child.on("error", ({ message }) =>
        reject(invalidRequest("command", `The command can't be run: ${message}.`)),
      );
      child.on("exit", (code, signal) =>
        resolve(code ?? 128 + constants.signals[signal as NodeJS.Signals]),
      );
    });
  } finally {
    timer?.cancel();
    stopListening();
    held.removeEventListener("abort", lost);
  }
}
