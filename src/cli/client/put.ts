import { createReadStream } from "node:fs";
import type { Readable } from "node:stream";
import type { Command } from "commander";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import { type CommandIo, readAll } from "../output/command-io.ts";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  leaseId,
  timeToLive,
  usageError,
  wholeNumber,
} from "./client-options.ts";
import { runSession } from "./client-session.ts";
import { printObject } from "./object-output.ts";

interface PutOptions extends ClientOptions, HistoryOptions {
  readonly file?: string;
  readonly expectedModRevision?: number;
  readonly lease?: bigint;
  /** Milliseconds. */
  readonly ttl?: number;
}

/** Maximum size of an input value: far above the limit of any store, and far below the memory of this process. */
const maxInputBytes = 64 * 1024 * 1024;

/** Adds `put`. */
export function addPut(program: Command, io: CommandIo): void {
  const command = program
    .command("put")
    .description("Create or replace an object.")
    .argument("<key>", "the object's key, relative to the resource's prefix")
    .argument("[value]", "the new value; - or absent: read it from standard input")
    .option("--file <path>", "read the value from this file")
    .option(
      "--expected-mod-revision <revision>",
      "write only if the object's mod_revision is this; 0: only if it does not exist",
      wholeNumber,
    )
    .option("--lease <id>", "attach the object to this lease", leaseId)
    .option(
      "--ttl <duration>",
      "delete the object after this time, rounded up to whole seconds, unless it is put again",
      timeToLive,
    );
  addHistoryOption(addClientOptions(command)).action(
    async (key: string, value: string | undefined, options: PutOptions) => {
      if (value !== undefined && options.file !== undefined) {
        usageError(command, "give the value as an argument or with --file, not both.");
      }
      if (value === undefined && options.file === undefined && io.stdin.isTTY === true) {
        usageError(command, "give the value, --file, or - to type it.");
      }
      if (options.ttl !== undefined && options.lease !== undefined) {
        usageError(command, "--ttl creates a lease, so it can't be used with --lease.");
      }
      await runSession(io, options, async (session) => {
        const bytes = await readValue(io, value, options.file);
        const { expectedModRevision, lease, ttl, historyId } = options;
        const result = await session.client.put(options.resource, key, bytes, {
          expectedModRevision,
          lease,
          ttlMs: ttl,
          historyId,
        });
        await printObject(session, options.output, result);
      });
    },
  );
}

async function readValue(
  io: CommandIo,
  value: string | undefined,
  file: string | undefined,
): Promise<Uint8Array> {
  if (file !== undefined) return readValueFile(file);
  if (value !== undefined && value !== "-") return Buffer.from(value);
  return readInput(io.stdin, "Standard input");
}

/** Reads a stream. `what` is the subject of the error's sentence if it has too much. */
async function readInput(stream: Readable, what: string): Promise<Uint8Array> {
  const content = await readAll(stream, maxInputBytes);
  if (content !== undefined) return content;
  throw invalidRequest("value", `${what} has more than ${maxInputBytes} bytes.`);
}

async function readValueFile(path: string): Promise<Uint8Array> {
  try {
    return await readInput(createReadStream(path), "The file");
  } catch (error) {
    if (error instanceof WatchFanoutError) throw error;
    throw invalidRequest("value", `--file can't be read: ${messageOf(error)}.`);
  }
}
