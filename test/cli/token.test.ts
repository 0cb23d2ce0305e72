import { PassThrough, Readable } from "node:stream";
import { Command, CommanderError } from "commander";
import { describe, expect, test } from "vitest";
import { addTokenCommands } from "../../src/cli/token.ts";
import { parseTokenFile, StaticTokens } from "../../src/identity/token-file.ts";

async function run(args: readonly string[], input: string = "") {
  const stdout = new PassThrough();
  let errors = "";
  const output = {
    writeErr: (text: string): void => {
      errors += text;
    },
  };
  const program = new Command("watch-fanout").exitOverride().configureOutput(output);
  addTokenCommands(program, { stdin: Readable.from([Buffer.from(input)]), stdout });
  let code = 0;
  try {
    await program.parseAsync(["token", ...args], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    code = error.exitCode;
  }
  return { code, stdout: String(stdout.read() ?? ""), errors };
}

describe("watch-fanout token", () => {
  test("hash prints the digest of stdin for a line of the token file", async () => {
    const { code, stdout } = await run(["hash"], "secret\n");
    expect(code).toBe(0);
    const lines = parseTokenFile(Buffer.from(`${stdout.trim()} alice,oncall`));
    expect(new StaticTokens(lines, () => {}).find("secret")).toMatchObject({ name: "alice" });
  });

  test.each(["", "\n", "two words", "x".repeat(16_385)])(
    "hash refuses %j, and does not print it",
    async (input) => {
      const { code, stdout, errors } = await run(["hash"], input);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(errors).toContain("stdin is not a token");
      if (input.trim() !== "") expect(errors).not.toContain(input);
    },
  );

  test("hash takes no token from the command line, where other users could see it", async () => {
    const { code, errors } = await run(["hash", "secret"], "secret");
    expect(code).not.toBe(0);
    expect(errors).toContain("too many arguments");
  });

  test("generate prints a new token each time", async () => {
    const tokens = new Set([(await run(["generate"])).stdout, (await run(["generate"])).stdout]);
    expect(tokens.size).toBe(2);
    for (const token of tokens) expect(token).toMatch(/^[\w-]{43}\n$/);
  });
});
