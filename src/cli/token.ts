import { randomBytes } from "node:crypto";
import type { Readable } from "node:stream";
import type { Command } from "commander";
import { tokenDigest } from "../identity/token-file.ts";
import { isToken, maxTokenBytes, tokenRule } from "../wire/bearer-token.ts";
import { type CommandIo, processIo, readAll, refuse } from "./output/command-io.ts";

/** Adds `token hash` and `token generate`. */
export function addTokenCommands(
  program: Command,
  io: Pick<CommandIo, "stdin" | "stdout"> = processIo,
): void {
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
    if (text === undefined) refuse(hash, [`stdin is not a token: ${tokenRule}.`]);
    io.stdout.write(`sha256:${tokenDigest(text)}\n`);
  });
  token
    .command("generate")
    .description("Print a new random token.")
    .action(() => void io.stdout.write(`${randomBytes(32).toString("base64url")}\n`));
}

/** The token, without the line break at its end; undefined if the input is not a token. */
async function readToken(stdin: Readable): Promise<string | undefined> {
  const content = await readAll(stdin, maxTokenBytes + 2);
  const text = content?.toString("utf8").replace(/\r?\n$/, "") ?? "";
  return isToken(text) ? text : undefined;
}
