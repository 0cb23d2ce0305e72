import { type Command, InvalidArgumentError } from "commander";
import type { Scope } from "../../storage/storage.ts";
import { printableText } from "../output/printable.ts";
import { usageError } from "./client-options.ts";

/** What one watch of the command is of. */
export interface WatchedScope {
  readonly resource: string;
  /** Undefined: all keys. */
  readonly scope: Scope | undefined;
  /** How it is named in the output, such as pods=ns-1/; undefined: it is not, as it can be no other. */
  readonly name: string | undefined;
}

interface ScopeOptions {
  readonly resource: string;
  readonly key?: string;
  readonly prefix?: string;
  readonly scope?: readonly WatchedScope[];
  readonly scopeKey?: readonly WatchedScope[];
}

/** Adds --scope and --scope-key, which may be repeated. */
export function addScopeOptions(command: Command): Command {
  return command
    .option(
      "--scope <resource=prefix>",
      "watch this prefix of this resource; repeatable, on one stream",
      scopeReader((prefix) => ({ prefix })),
    )
    .option(
      "--scope-key <resource=key>",
      "the same for one object",
      scopeReader((key) => {
        if (key === "") throw new InvalidArgumentError("The key is empty.");
        return { key };
      }),
    );
}

/** The scopes to watch. Ends the command with a usage error if they are given in both ways. */
export function scopesOf(command: Command, options: ScopeOptions): readonly WatchedScope[] {
  const { resource, key, prefix, scope = [], scopeKey = [] } = options;
  const scopes = [...scope, ...scopeKey];
  if (scopes.length === 0) {
    const only = key !== undefined ? { key } : prefix === undefined ? undefined : { prefix };
    return [{ resource, scope: only, name: undefined }];
  }
  const isGiven = command.getOptionValueSource("resource") !== "default";
  if (isGiven || key !== undefined || prefix !== undefined) {
    usageError(
      command,
      "--scope and --scope-key name the resource: leave out --resource, --key and the prefix, or use another --scope for them.",
    );
  }
  return scopes;
}

function scopeReader(scopeOf: (text: string) => Scope) {
  return (text: string, before: readonly WatchedScope[] = []): readonly WatchedScope[] => {
    const end = text.indexOf("=");
    if (end <= 0)
      throw new InvalidArgumentError("Write it as RESOURCE=PREFIX, such as pods=ns-1/.");
    const scope = scopeOf(text.slice(end + 1));
    return [...before, { resource: text.slice(0, end), scope, name: printableText(text) }];
  };
}
