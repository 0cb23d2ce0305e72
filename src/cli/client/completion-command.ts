import { Argument, Command } from "commander";
import { type Client, connect } from "../../client/connect.ts";
import {
  type Candidate,
  type Completion,
  completionAt,
  matching,
  type Position,
  plain,
} from "../completion/candidates.ts";
import {
  completeCommand,
  completionScript,
  filesLine,
  type Shell,
  shells,
} from "../completion/scripts.ts";
import { contextFile, isGiven } from "../contexts/use-context.ts";
import type { CommandIo } from "../output/command-io.ts";
import { addClientOptions, type ClientOptions } from "./client-options.ts";
import { connectOptions } from "./client-session.ts";

/** How long the service may take unless --timeout says it, in milliseconds: the user waits at a prompt. */
const timeoutMs = 1_000;

/** Number of keys that are read, and of candidates. */
const maxKeys = 500;
const maxCandidates = 100;

const help = `
Examples:
  bash: source <(watch-fanout completion bash)
  zsh:  source <(watch-fanout completion zsh)      after compinit
  fish: watch-fanout completion fish | source
`;

/** Adds `completion`, and the command that its scripts call. */
export function addCompletion(program: Command, io: CommandIo): void {
  program
    .command("completion")
    .description(
      "Print a script for a shell to complete commands, flags and their values, and from the service resources and keys.",
    )
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .addHelpText("after", help)
    .action((shell: Shell) => void io.stdout.write(completionScript(shell)));
  program
    .command(completeCommand, { hidden: true })
    .argument("[words...]")
    .action(async (words: readonly string[]) => {
      const position = completionAt(program, words);
      const { completion } = position;
      if ("of" in completion && completion.of === "files") {
        io.stdout.write(`${filesLine}\n`);
        return;
      }
      const candidates = await candidatesOf(position).catch(() => []);
      io.stdout.write(candidates.slice(0, maxCandidates).map(lineOf).join(""));
    });
}

/** A line for the scripts. A word with a line end or a tab can't be completed. */
function lineOf({ word, description }: Candidate): string {
  return /\p{Cc}/u.test(word) ? "" : `${word}\t${description.replace(/\s+/g, " ")}\n`;
}

/** Rejects if the context, the flags or the service have a fault: there are no candidates then. */
async function candidatesOf(position: Position): Promise<readonly Candidate[]> {
  const { completion } = position;
  if ("words" in completion) return completion.words;
  if (completion.of === "files") return [];
  const { options, command } = optionsOf(position.flags);
  if (completion.of === "contexts") return withPrefix(completion, contextFile(command, true).names);
  const limit = isGiven(command, "timeout") ? {} : { timeoutMs };
  const client = connect({ ...(await connectOptions(options)), ...limit, maxAttempts: 1 });
  try {
    return withPrefix(completion, await wordsOf(client, options.resource, completion));
  } finally {
    client.close();
  }
}

function withPrefix(
  { begun, before }: Extract<Completion, { begun: string }>,
  words: readonly string[],
): readonly Candidate[] {
  const found = matching(
    before + begun,
    words.map((word) => plain(before + word)),
  );
  return "words" in found ? found.words : [];
}

async function wordsOf(
  client: Client,
  resource: string,
  { of, begun }: Extract<Completion, { begun: string }>,
): Promise<readonly string[]> {
  if (of === "resources") return (await client.resources()).map(({ name }) => name);
  const page = await client.page(resource, {
    ...{ prefix: begun, view: "KEYS", pageSize: maxKeys, at: { match: "ANY" } },
  });
  // Keys below one more level are one candidate.
  const words = page.items.map(({ key }) => {
    const slash = key.indexOf("/", begun.length);
    return slash === -1 ? key : key.slice(0, slash + 1);
  });
  return [...new Set(words)];
}

/** The options of client commands among the flags, with those of variables and of the context. */
function optionsOf(flags: readonly string[]): { command: Command; options: ClientOptions } {
  const command = addClientOptions(new Command())
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => {});
  command.parse(flags, { from: "user" });
  return { command, options: command.opts<ClientOptions>() };
}
