import type { Argument, Command, Option } from "commander";

/** What a word can be: one of these, or something that only the service, the contexts or the file system know. */
export type Completion =
  | { readonly words: readonly Candidate[] }
  | {
      readonly of: "keys" | "resources" | "contexts";
      readonly begun: string;
      readonly before: string;
    }
  | { readonly of: "files" };

export interface Candidate {
  readonly word: string;
  /** Empty if there is nothing to say. */
  readonly description: string;
}

export interface Position {
  /** The command that the words lead to. */
  readonly command: Command;
  readonly completion: Completion;
  /** The flags before the last word, with their values, to call the service in the same way. */
  readonly flags: readonly string[];
}

/**
 * What the last of `words` can become, by the definitions of the commands. `words` are those behind the program's name; the
 * last may be empty.
 */
export function completionAt(program: Command, words: readonly string[]): Position {
  let command = program;
  const flags: string[] = [];
  let positionals = 0;
  let isLiteral = false;
  /** The option whose value the next word is. */
  let pending: Option | undefined;
  for (const word of words.slice(0, -1)) {
    if (pending !== undefined) {
      flags.push(word);
      pending = undefined;
    } else if (!isLiteral && word === "--") {
      isLiteral = true;
    } else if (!isLiteral && word.startsWith("-") && word !== "-") {
      const option = optionOf(command, word);
      flags.push(word);
      if (option?.required === true && !word.includes("=")) pending = option;
    } else {
      const inner = positionals === 0 ? commandOf(command, word) : undefined;
      if (inner === undefined) positionals++;
      else command = inner;
    }
  }
  if (pending !== undefined) flags.pop();
  const last = words.at(-1) ?? "";
  const completion =
    pending !== undefined
      ? valuesOf(pending, last, "")
      : !isLiteral && last.startsWith("-")
        ? flagCompletion(command, last)
        : wordCompletion(command, positionals, last);
  return { command, completion, flags };
}

function commandOf(command: Command, name: string): Command | undefined {
  return command.commands.find((inner) => inner.name() === name || inner.aliases().includes(name));
}

function optionOf(command: Command, word: string): Option | undefined {
  const [name] = word.split("=");
  return command.options.find(({ long, short }) => long === name || short === name);
}

function flagCompletion(command: Command, begun: string): Completion {
  const equals = begun.indexOf("=");
  if (equals > 0) {
    const option = optionOf(command, begun);
    const before = begun.slice(0, equals + 1);
    return option === undefined ? { words: [] } : valuesOf(option, begun.slice(equals + 1), before);
  }
  const visible = command.createHelp().visibleOptions(command);
  return matching(
    begun,
    visible.map(({ long, description }) => ({ word: long ?? "", description })),
  );
}

function wordCompletion(command: Command, positionals: number, begun: string): Completion {
  if (positionals === 0 && command.commands.length > 0) {
    const visible = command.createHelp().visibleCommands(command);
    return matching(
      begun,
      visible.map((inner) => ({ word: inner.name(), description: inner.description() })),
    );
  }
  const { registeredArguments } = command;
  const last: Argument | undefined = registeredArguments.at(-1);
  const argument = registeredArguments[positionals] ?? (last?.variadic === true ? last : undefined);
  if (argument === undefined) return { words: [] };
  const { argChoices } = argument;
  if (argChoices !== undefined) return matching(begun, argChoices.map(plain));
  return byName(argument.name(), begun, "");
}

function valuesOf({ argChoices, flags }: Option, begun: string, before: string): Completion {
  if (argChoices !== undefined) {
    return matching(
      before + begun,
      argChoices.map((choice) => plain(before + choice)),
    );
  }
  const flag = /--([\w-]+)/.exec(flags)?.[1] ?? "";
  const placeholder = /[<[]([^>\]]*)[>\]]/.exec(flags)?.[1] ?? "";
  return byName(dynamicFlags[flag] ?? placeholder.toLowerCase(), begun, before);
}

/** The flags whose values are what arguments of these names are. */
const dynamicFlags: Readonly<Record<string, string>> = {
  ...{ resource: "resource", context: "context" },
  ...{ key: "key", prefix: "prefix", from: "key", to: "key" },
};

function byName(name: string, begun: string, before: string): Completion {
  if (name === "key" || name === "prefix") return { of: "keys", begun, before };
  if (name === "resource") return { of: "resources", begun, before };
  if (name === "context") return { of: "contexts", begun, before };
  return name === "file" || name === "path" ? { of: "files" } : { words: [] };
}

/** Those that begin with `begun`, for shells that do not select. */
export function matching(begun: string, candidates: readonly Candidate[]): Completion {
  return { words: candidates.filter(({ word }) => word !== "" && word.startsWith(begun)) };
}

export function plain(word: string): Candidate {
  return { word, description: "" };
}
