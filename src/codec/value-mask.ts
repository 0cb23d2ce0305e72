import { parsePath } from "./path.ts";

/** Reduces values to the parts that a list of paths names. */
export interface ValueMask {
  /** Equal for masks that name the same parts in any way, and for no others of a codec. */
  readonly canonical: string;
  /**
   * Returns a value in the same format that has nothing but the named parts; undefined if the value can't be decoded. Never
   * throws. Keeps at most the last value, for other masks of the codec.
   */
  apply(value: Uint8Array): Uint8Array | undefined;
}

/** A path of a mask that the codec can't follow. Its message is a sentence. */
export class MaskPathError extends Error {
  override readonly name = "MaskPathError";
  readonly path: string;

  constructor(path: string, message: string) {
    super(message);
    this.path = path;
  }
}

/** Maximum number of paths. */
const maxPaths = 128;
/** Maximum number of names in a path. */
const maxSteps = 64;
/** Maximum length of all paths together, in UTF-16 units. */
const maxLength = 8_192;

/** The parts that a mask names below one place, by name; undefined: everything there. */
export type MaskTree = ReadonlyMap<string, MaskTree | undefined>;

/**
 * Merges paths to a tree. A path that leads into what another one names adds nothing. Throws a MaskPathError for too many
 * paths, and for those that can't be parsed.
 */
export function maskTree(paths: readonly string[]): MaskTree {
  if (paths.length > maxPaths) {
    const message = `There are ${paths.length} paths; the maximum is ${maxPaths}.`;
    throw new MaskPathError(paths[maxPaths] ?? "", message);
  }
  let length = 0;
  const root: Branch = new Map();
  for (const path of paths) {
    length += path.length;
    if (length > maxLength) {
      throw new MaskPathError(
        path.slice(0, 100),
        `The paths are longer than ${maxLength} characters together, the maximum.`,
      );
    }
    add(root, stepsOf(path));
  }
  return root;
}

type Branch = Map<string, Branch | undefined>;

function stepsOf(path: string): readonly string[] {
  const parsed = parsePath(path);
  if (parsed.problem !== undefined) throw new MaskPathError(path, parsed.problem);
  const { steps } = parsed;
  if (steps.length <= maxSteps) return steps;
  throw new MaskPathError(path, `A path has ${steps.length} names; the maximum is ${maxSteps}.`);
}

function add(root: Branch, steps: readonly string[]): void {
  let branch = root;
  for (const [i, step] of steps.entries()) {
    const isKnown = branch.has(step);
    let below = branch.get(step);
    if (isKnown && below === undefined) return;
    if (i === steps.length - 1) {
      branch.set(step, undefined);
      return;
    }
    if (below === undefined) {
      below = new Map();
      branch.set(step, below);
    }
    branch = below;
  }
}

/** A text that is equal for equal trees, and for no others. */
export function canonicalTree(tree: MaskTree): string {
  const names = [...tree.keys()].sort();
  const parts = names.map((name) => {
    const below = tree.get(name);
    return `${JSON.stringify(name)}${below === undefined ? "" : canonicalTree(below)}`;
  });
  return `{${parts.join()}}`;
}
