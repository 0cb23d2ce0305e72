import { randomBytes } from "node:crypto";
import type { Readable, Writable } from "node:stream";
import type { Command } from "commander";
import { tokenDigest } from "../identity/token-file.ts";
import { exitCodes } from "./output/exit-codes.ts";

/** Maximum size of a token, in bytes: servers accept no larger headers. */
const maxTokenBytes = 16 * 1024;

/** The process that a command runs in. */
export interface TokenIo {
  readonly stdin: Readable;
  readonly stdout: Writable;
}

/** Adds `token hash` and `token generate`. */
export function addTokenCommands(program: Command, io: TokenIo = process): void {
  const token = program.command("token").description("Make tokens and their digests.");
  const hash = token
    .command("hash")
    .description("Read a token from stdin, and print its digest for a line of --token-file.")
    .addHelpText(
      "after",
      '\nExample:\n  echo "$(watch-fanout token hash < token) alice,oncall" >> tokens\n',
    );
  hash.action(async () => {
    const text = await readToken(io.stdin);
    if (text === undefined) {
      const rule = `at most ${maxTokenBytes} printable ASCII characters without spaces`;
      hash.error(`error: stdin is not a token: ${rule}.`, { exitCode: exitCodes.usage });
      return;
    }
    io.stdout.write(`sha256:${tokenDigest(text)}\n`);
  });
  token
    .command("generate")
    .description("Print a new random token.")
    .action(() => void io.stdout.write(`${randomBytes(32).toString("base64url")}\n`));
}

/** The token, without the line break at its end; undefined if the input is not a token. */
async function readToken(stdin: Readable): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    bytes += Buffer.from(chunk).byteLength;
    if (bytes > maxTokenBytes + 2) return undefined;
    chunks.push(Buffer.from(chunk));
  }
  const text = Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
  return text.length <= maxTokenBytes && /^[\x21-\x7e]+$/.test(text) ? text : undefined;
}
