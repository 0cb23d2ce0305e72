import { hostname } from "node:os";
import type { Command } from "commander";
import { messageOf } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import {
  type Leader,
  LeaderElector,
  type Leadership,
  observeLeader,
} from "../../client/coordination/leader-elector.ts";
import { type Lock, Mutex } from "../../client/coordination/mutex.ts";
import { Session as LeaseSession } from "../../client/coordination/session.ts";
import { type CommandIo, exitCodes, tableOptions } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { Table } from "../output/table.ts";
import {
  addClientOptions,
  type ClientOptions,
  requireFormat,
  timeToLive,
  usageError,
} from "./client-options.ts";
import { runSession, type Session, untilInterrupted } from "./client-session.ts";
import { line } from "./object-output.ts";
import { runLocked } from "./run-locked.ts";

interface HoldOptions extends ClientOptions {
  /** Milliseconds. */
  readonly ttl?: number;
}

function addHoldOptions(command: Command): Command {
  return addClientOptions(command).option(
    "--ttl <duration>",
    "how long others wait after a crash of this process (default: 15s)",
    timeToLive,
  );
}

/** Adds `lock`. */
export function addLock(program: Command, io: CommandIo): void {
  const command = program
    .command("lock")
    .description(
      "Wait for a lock, and run a command while it is held; the exit code is that of the command. Without a command, print the fencing token and hold the lock until interrupted.",
    )
    .argument("<name>", "the lock's keys are below this one in the resource")
    .argument(
      "[command...]",
      "behind --; gets WATCH_FANOUT_FENCING_TOKEN and WATCH_FANOUT_LOCK_KEY, and SIGTERM when the lock is lost",
    );
  addHoldOptions(command).action(
    async (name: string, words: readonly string[], options: HoldOptions) => {
      requireFormat(command, options, ["table", "json", "value"]);
      await runSession(io, options, (session) =>
        whileHeld(
          session,
          options,
          (leased, signal) => new Mutex(leased, options.resource, name).lock({ signal }),
          async (lock, interrupted) => {
            const { key, fencingToken } = lock;
            const token = String(fencingToken);
            if (words.length > 0) {
              const env = { WATCH_FANOUT_FENCING_TOKEN: token, WATCH_FANOUT_LOCK_KEY: key };
              return io.exitWith(await runLocked(io, words, env, lock.signal));
            }
            const { output } = session;
            await output.write(
              options.output === "json" ? line({ key, fencing_token: token }) : `${token}\n`,
            );
            await ended(lock, interrupted);
          },
        ),
      );
    },
  );
}

interface ElectOptions extends HoldOptions {
  readonly observe?: true;
}

/** Adds `elect`. */
export function addElect(program: Command, io: CommandIo): void {
  const command = program
    .command("elect")
    .description(
      "Wait to become the leader, print the fencing token and the value, and lead until interrupted.",
    )
    .argument("<name>", "the election's keys are below this one in the resource")
    .argument("[value]", "what others observe of this leader (default: the host's name)")
    .option("--observe", "print the leader and each change of it, and do not campaign");
  addHoldOptions(command).action(
    async (name: string, value: string | undefined, options: ElectOptions) => {
      const { resource } = options;
      requireFormat(command, options, ["table", "json", "value"]);
      const print = leaders(io, options);
      if (options.observe === true) {
        if (value !== undefined) usageError(command, "--observe can't be used with a value.");
        return runSession(io, options, (session) =>
          untilInterrupted(session, async (signal) => {
            for await (const leader of observeLeader(session.client, resource, name, signal)) {
              await session.output.write(print(leader));
            }
          }),
        );
      }
      const identity = value ?? hostname();
      await runSession(io, options, (session) =>
        whileHeld(
          session,
          options,
          (leased, signal): Promise<Leadership> =>
            new LeaderElector({
              ...{ session: leased, resource, name, identity },
              onStartedLeading: () => Promise.resolve(),
            }).campaign({ signal }),
          async (leadership, interrupted) => {
            const { fencingToken } = leadership;
            await session.output.write(print({ value: identity, fencingToken }));
            await ended(leadership, interrupted);
          },
        ),
      );
    },
  );
}

/** Formats the leaders of an election; undefined: no candidate leads. */
function leaders(
  io: CommandIo,
  { output }: ClientOptions,
): (leader: Pick<Leader, "value" | "fencingToken"> | undefined) => string {
  const table = new Table(["TOKEN", "LEADER"], tableOptions(io));
  return (leader) => {
    const { value = "", fencingToken = 0 } = leader ?? {};
    if (output === "json") return line({ fencing_token: String(fencingToken), value });
    if (output === "value") return `${value}\n`;
    return table.format([
      leader === undefined ? ["-", "-"] : [String(fencingToken), printableText(value)],
    ]);
  };
}

/** Resolves at an interrupt. Rejects when the lock is lost. */
function ended({ signal: held }: Lock, interrupted: AbortSignal): Promise<void> {
  return waitFor<void>(
    (resolve) => {
      const done = (): void => resolve();
      interrupted.addEventListener("abort", done);
      if (interrupted.aborted) done();
      return () => interrupted.removeEventListener("abort", done);
    },
    { signal: held },
  );
}

/**
 * Acquires a lock with a lease of its own, and ends that after `work`. A lock that is lost makes the exit code 1, also if the
 * work has another one, and so does an interrupt before it is acquired: then nothing was done under the lock.
 */
async function whileHeld<T extends Lock>(
  { client, io, say }: Session,
  { ttl }: HoldOptions,
  acquire: (leased: LeaseSession, signal: AbortSignal) => Promise<T>,
  work: (lock: T, interrupted: AbortSignal) => Promise<void>,
): Promise<void> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  const stopListening = io.onInterrupt(() => interrupt.abort());
  const onError = (error: Error): void => say(messageOf(error));
  let leased: LeaseSession | undefined;
  let lock: T | undefined;
  try {
    leased = await LeaseSession.open(client, { ttlMs: ttl, renew: false, onError, signal });
    lock = await acquire(leased, signal);
    await work(lock, signal);
    if (!lock.isHeld) throw lock.signal.reason;
  } catch (error) {
    if (lock?.signal.aborted === true) {
      say(`The lock is lost. ${messageOf(lock.signal.reason)}`);
      io.exitWith(exitCodes.failed);
    } else if (lock === undefined && signal.aborted) {
      say("Interrupted before the lock was acquired.");
      io.exitWith(exitCodes.failed);
    } else throw error;
  } finally {
    stopListening();
    await leased?.close();
  }
}
