/** The steps of a path from the whole value to a part of it, or the problem of the path. */
type ParsedPath =
  | { readonly steps: readonly string[]; readonly problem?: undefined }
  | { readonly problem: string };

/**
 * Splits `status.phase` at its dots. A dot or backslash in a key is escaped with a backslash:
 * `metadata.annotations.example\.com/owner`.
 */
export function parsePath(path: string): ParsedPath {
  const steps: string[] = [];
  let step = "";
  for (let i = 0; i < path.length; i++) {
    const character = path.charAt(i);
    if (character === ".") {
      steps.push(step);
      step = "";
    } else if (character === "\\") {
      const escaped = path.charAt(++i);
      if (escaped !== "." && escaped !== "\\") {
        return {
          problem: `${JSON.stringify(path)} has a backslash that is not before a dot or another backslash.`,
        };
      }
      step += escaped;
    } else {
      step += character;
    }
  }
  steps.push(step);
  if (steps.includes("")) {
    return {
      problem: `${JSON.stringify(path)} is not a path: names with one dot between, such as status.phase.`,
    };
  }
  return { steps };
}

/**
 * As `parsePath`, for the path of a field. The path is also the field's name in field selectors, which have no escapes
 * for names.
 */
export function parseFieldPath(path: string): ParsedPath {
  if (!/[=,]|!$/.test(path)) return parsePath(path);
  return {
    problem:
      `${JSON.stringify(path)} can't be the name of a field, ` +
      "since a field selector reads = and , and ! at the end as the end of a name.",
  };
}
