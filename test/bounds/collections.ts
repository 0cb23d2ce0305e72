/** What holds a collection: a class, or a constant of a module. */
export interface Owner {
  readonly name: string;
  readonly file: string;
}

/** The types that hold what is added to them. A class that others use as one belongs here, so that they need a row. */
const collections = [
  ...["Map", "Set", "WeakMap", "WeakSet", "Array"],
  ...["Fifo", "FairQueue", "BatchQueue", "KeyedQueue", "KeySet", "Heap", "BTree", "Slabs"],
  ...["Gate", "Ledger", "Condition"],
].join("|");

/**
 * Patterns of lines that make a class or module an owner: a field that is initialized with a collection, or a private
 * field that is declared as one and initialized in the constructor, or a constant of the module. Variables of functions
 * have more indentation. A readonly collection never grows: it came from elsewhere, or is a constant.
 */
const owning: readonly RegExp[] = [
  new RegExp(`^ {2}(?:readonly )?#?\\w+(?:: (?:[^=]|=>)+)? = (?:new (?:${collections})\\b|\\[)`),
  new RegExp(
    `^ {2}(?:readonly )?#\\w+: (?!readonly )[^=;]*(?:\\b(?:${collections})\\b|\\[\\])[^=;]*;$`,
  ),
  new RegExp(
    `^(?:export )?(?:const|let) \\w+(?:: (?!Readonly(?:Map|Set)<)[^=]+)? = new (?:${collections})\\b`,
  ),
];

const declaration =
  /^(?:export )?(?:abstract )?(?:async )?(?:class|function\*?|const|let|interface|type) (\w+)/;

export function isOwning(line: string): boolean {
  return owning.some((pattern) => pattern.test(line));
}

/** The names that a module declares at its top level. */
export function declaredIn(source: string): readonly string[] {
  return source.split("\n").flatMap((line) => declaration.exec(line)?.[1] ?? []);
}

/** The declarations of a module that hold a collection, each once. */
export function ownersIn(file: string, source: string): readonly Owner[] {
  const names = new Set<string>();
  let name = file;
  for (const line of source.split("\n")) {
    name = declaration.exec(line)?.[1] ?? name;
    if (isOwning(line)) names.add(name);
  }
  return [...names].map((owner) => ({ name: owner, file }));
}
