import { setTimeout } from "node:timers/promises";
import { type Command, Option } from "commander";
import { messageOf } from "../../base/errors.ts";
import { streamSorts } from "../../server/admin/status/stream-query.ts";
import { type AdminPortOptions, addAdminPortOptions } from "../admin/admin-port.ts";
import {
  type CommandIo,
  Output,
  processIo,
  reportFailure,
  tableOptions,
} from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { readStatus } from "./read-status.ts";
import { statusText } from "./status-text.ts";

/** Interval of the updates, and how long the service may take to respond, in milliseconds. */
const intervalMs = 1_000;
const timeoutMs = 10_000;

/** The alternate screen of a terminal without its cursor, and back. */
const enterScreen = "\x1b[?1049h\x1b[?25l";
const leaveScreen = "\x1b[?25h\x1b[?1049l";

/** q, Q, Ctrl-C and Ctrl-D. */
const quitKeys: readonly number[] = [0x71, 0x51, 0x03, 0x04];

/** Signals that leave the screen as it was. Ctrl-C sends SIGINT if the input is no terminal. */
const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

interface TopOptions extends AdminPortOptions {
  readonly sort: string;
  readonly order: string;
  readonly search: string;
  readonly limit?: string;
  readonly once?: true;
}

/** The process that `top` runs in. */
export type TopIo = Omit<CommandIo, "onInterrupt">;

/** Adds `top`. */
export function addTop(program: Command, io: TopIo = processIo): void {
  const command = program
    .command("top")
    .description("Show what a service does, from its admin port, until q is pressed.");
  addAdminPortOptions(command)
    .addOption(
      new Option("--sort <by>", "what the streams are sorted by")
        .choices(streamSorts)
        .default("lag"),
    )
    .addOption(new Option("--order <order>").choices(["asc", "desc"]).default("desc"))
    .option("--search <text>", "only streams with this text: identity, scope, selector, state", "")
    .option("--limit <number>", "maximum number of streams (default: what fits; 50 with --once)")
    .option("--once", "print the status once, without control sequences");
  command.action(async (options: TopOptions) => {
    if (options.once !== true && io.stdout.isTTY !== true) {
      command.error("error: top needs a terminal. To print the status once, use --once.");
    }
    const output = new Output(io.stdout);
    try {
      if (options.once === true) await printOnce(io, output, options);
      else await show(io, options, output.failed);
    } catch (error) {
      reportFailure(io, error);
    }
  });
}

async function printOnce(io: TopIo, output: Output, options: TopOptions): Promise<void> {
  const status = await readStatus({ ...options, timeoutMs }, parametersOf(options, 50));
  await output.write(statusText(status, { colours: tableOptions(io).colours }));
  await output.flush();
}

/** Shows the status until the user quits or the terminal has gone. Rejects if the service can't be reached at first. */
async function show(io: TopIo, options: TopOptions, terminalGone: AbortSignal): Promise<void> {
  const { stdin, stdout } = io;
  const quitting = new AbortController();
  const quit = quitting.signal;
  const onEnd = (): void => quitting.abort();
  const onKey = (key: Buffer): void => {
    if (key.some((byte) => quitKeys.includes(byte))) onEnd();
  };
  const read = async (): Promise<string> => {
    const parameters = parametersOf(options, Math.min(500, Math.max(1, stdout.rows ?? 24)));
    const status = await readStatus({ ...options, timeoutMs, quit }, parameters);
    return statusText(status, tableOptions(io));
  };
  let text = await read();
  stdin.setRawMode?.(true);
  stdin.on("data", onKey);
  stdin.once("end", onEnd);
  terminalGone.addEventListener("abort", onEnd);
  for (const signal of signals) process.on(signal, onEnd);
  stdout.write(enterScreen);
  try {
    while (!quit.aborted) {
      draw(io, text);
      await setTimeout(intervalMs, undefined, { signal: quit }).catch(() => {});
      if (quit.aborted) return;
      text = await read().catch((error: unknown) => {
        const [, ...rest] = text.split("\n");
        return [printableText(messageOf(error)), ...rest].join("\n");
      });
    }
  } finally {
    stdout.write(leaveScreen);
    for (const signal of signals) process.off(signal, onEnd);
    stdin.off("data", onKey).off("end", onEnd).pause();
    stdin.setRawMode?.(false);
  }
}

/** Overwrites the screen line by line, so that it does not flicker. */
function draw({ stdout }: TopIo, text: string): void {
  const lines = text.split("\n").slice(0, (stdout.rows ?? 24) - 1);
  stdout.write(`\x1b[H${lines.map((line) => `${line}\x1b[K\r\n`).join("")}\x1b[J`);
}

function parametersOf({ sort, order, search, limit }: TopOptions, most: number): URLSearchParams {
  return new URLSearchParams({ sort, order, search, limit: limit ?? String(most) });
}
