import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { entries } from "./entries.ts";
import type { Mutation } from "./entry.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** How often a text occurs in another. */
export function occurrences(text: string, of: string): number {
  return text.split(of).length - 1;
}

/** Returns the source with the bug. Throws unless the text to replace occurs exactly once. */
export function mutated(source: string, { file, find, replace }: Mutation): string {
  const count = occurrences(source, find);
  if (count !== 1) throw new Error(`${file} has this text ${count} times: ${find}`);
  return source.replace(find, () => replace);
}

/**
 * The mutations that the variable CORPUS asks for: the id of an entry, and after a comma the folder or file that its
 * mutations are limited to.
 */
export function requestedMutations(corpus: string | undefined): readonly Mutation[] {
  if (corpus === undefined || corpus === "") return [];
  const [id, below = ""] = corpus.split(",");
  const entry = entries.find((one) => one.id === id);
  if (entry === undefined) throw new Error(`The corpus has no entry ${id}.`);
  return entry.mutations.filter(({ file }) => file.startsWith(below));
}

/** Returns the source of a module with the mutations that concern it. `path`: absolute. */
export function mutatedModule(
  source: string,
  path: string,
  mutations: readonly Mutation[],
): string {
  const file = relative(root, path);
  return mutations
    .filter((mutation) => mutation.file === file)
    .reduce((text, mutation) => mutated(text, mutation), source);
}
