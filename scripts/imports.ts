import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

/** What each file, or folder, imports. */
export type ImportGraph = ReadonlyMap<string, ReadonlySet<string>>;

/**
 * The imports of all files that match the patterns, as paths from `root`. Included are imports of types, imports at run
 * time, and what is exported from another file; imports of packages are not.
 */
export function importsOf(root: string, patterns: readonly string[]): ImportGraph {
  const files = globSync([...patterns], { cwd: root }).sort();
  return new Map(
    files.map((file) => {
      const source = readFileSync(join(root, file), "utf8");
      const specifiers = source.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
      const imported = [...specifiers].map(([, path = ""]) => normalize(join(dirname(file), path)));
      return [file, new Set(imported)] as const;
    }),
  );
}

/** The folders of files, each with the other folders that its files import from. */
export function foldersOf(files: ImportGraph): ImportGraph {
  const folders = new Map<string, Set<string>>();
  for (const [file, imports] of files) {
    const folder = dirname(file);
    const imported = folders.get(folder) ?? new Set();
    folders.set(folder, imported);
    for (const other of imports) imported.add(dirname(other));
    imported.delete(folder);
  }
  return folders;
}

/**
 * The circles: each is a group in which every member imports every other one, directly or through members. In the order
 * of their names. By Tarjan's algorithm for strongly connected components.
 */
export function circlesIn(graph: ImportGraph): readonly (readonly string[])[] {
  const circles: string[][] = [];
  const indexes = new Map<string, number>();
  /** What was visited, and is in no group yet. */
  const open: string[] = [];

  /** Returns the lowest index of what is open and can be reached from `node`. */
  function visit(node: string): number {
    const index = indexes.size;
    indexes.set(node, index);
    const position = open.push(node) - 1;
    const imports = graph.get(node) ?? [];
    let lowest = index;
    for (const other of imports) {
      if (!graph.has(other)) continue;
      const known = indexes.get(other);
      if (known === undefined) lowest = Math.min(lowest, visit(other));
      else if (open.includes(other)) lowest = Math.min(lowest, known);
    }
    if (lowest < index) return lowest;
    const group = open.splice(position);
    if (group.length > 1 || graph.get(node)?.has(node)) circles.push(group.sort());
    return Infinity;
  }

  for (const node of graph.keys()) if (!indexes.has(node)) visit(node);
  return circles.sort(([a = ""], [b = ""]) => (a < b ? -1 : 1));
}
