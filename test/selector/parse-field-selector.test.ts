import { describe, expect, test } from "vitest";
import { parseFieldSelector } from "../../src/selector/parse-field-selector.ts";
import { maxRequirements, maxSelectorLength } from "../../src/selector/selector-error.ts";
import fc, { runs } from "../property.ts";
import { refusal } from "./refusal.ts";

/** A selector's requirements as [field, operator, value]. */
function requirementsOf(text: string): string[][] {
  return parseFieldSelector(text).requirements.map(({ field, operator, value }) => [
    field,
    operator,
    value,
  ]);
}

describe("A field selector", () => {
  test.each<[what: string, text: string, requirements: string[][]]>([
    ["nothing", "", []],
    ["equality", "a=b", [["a", "=", "b"]]],
    ["equality as in a programming language", "a==b", [["a", "=", "b"]]],
    ["inequality", "a!=b", [["a", "!=", "b"]]],
    [
      "several requirements, in canonical order",
      "c!=d,a=b",
      [
        ["a", "=", "b"],
        ["c", "!=", "d"],
      ],
    ],
    ["requirements written twice, each once", "a=b,a==b", [["a", "=", "b"]]],
    [
      "requirements that exclude each other",
      "a=b,a!=b",
      [
        ["a", "!=", "b"],
        ["a", "=", "b"],
      ],
    ],
    ["a path", "status.podIPs[0].ip=10.0.0.1", [["status.podIPs[0].ip", "=", "10.0.0.1"]]],
    ["the empty value", "a=", [["a", "=", ""]]],
    [
      "the empty value before a comma",
      "a==,b!=",
      [
        ["a", "=", ""],
        ["b", "!=", ""],
      ],
    ],
    [
      "commas too many",
      ",a=b,,c=d,",
      [
        ["a", "=", "b"],
        ["c", "=", "d"],
      ],
    ],
    ["nothing but commas", ",,", []],
    ["whitespace, as part of the text next to it", "a = b", [["a ", "=", " b"]]],
    ["an escaped comma and an escaped equals sign", "a=b\\,c\\=d", [["a", "=", "b,c=d"]]],
    [
      "an escaped backslash before a comma",
      "a=b\\\\,c=d",
      [
        ["a", "=", "b\\"],
        ["c", "=", "d"],
      ],
    ],
    ["an escaped backslash before an escaped comma", "a=\\\\\\,", [["a", "=", "\\,"]]],
    ["an escaped equals sign first", "a=\\=b", [["a", "=", "=b"]]],
    ["exclamation marks", "a!b=!c!", [["a!b", "=", "!c!"]]],
    ["a backslash in a name, unchanged", "a\\=b", [["a\\", "=", "b"]]],
    ["a comma after a backslash in a name", "a\\,b=c", [["a\\,b", "=", "c"]]],
    ["any other character", 'ä\0😀 ("=<in>\n', [['ä\0😀 ("', "=", "<in>\n"]]],
  ])("takes %s: %j", (_, text, requirements) => {
    expect(requirementsOf(text)).toEqual(requirements);
  });

  test.each([
    [
      "no operator",
      "a=b,c",
      4,
      'Found "c" at position 4, expected the name of a field, then "=", ',
    ],
    [
      "an operator of labels",
      "a in (b)",
      0,
      'Found "a in (b)" at position 0, expected the name of',
    ],
    ["an operator only after the comma", "a,b=c", 0, 'Found "a" at position 0, expected the name '],
    ["blanks", "a=b, ", 4, 'Found " " at position 4, expected the name of a field, then "=", "=="'],
    ["no field", "a=b,=c", 4, 'Found "=" at position 4, expected the name of a field before it.'],
    [
      "no field to differ",
      "!=c",
      0,
      'Found "!=" at position 0, expected the name of a field befor',
    ],
    [
      "an operator alone",
      "=",
      0,
      'Found "=" at position 0, expected the name of a field before it',
    ],
    [
      "a second operator",
      "a=b=c",
      3,
      'Found "=" at position 3 in a value, expected it as \\= there.',
    ],
    [
      "a third equals sign",
      "a===b",
      3,
      'Found "=" at position 3 in a value, expected it as \\= the',
    ],
    [
      "an equals sign too many",
      "a!==b",
      3,
      'Found "=" at position 3 in a value, expected it as \\=',
    ],
    [
      "an unknown escape",
      "a=b\\n",
      3,
      "Found a backslash at position 3 that escapes nothing, expe",
    ],
    [
      "an escaped blank",
      "a=😀\\ ",
      4,
      "Found a backslash at position 4 that escapes nothing, expect",
    ],
    [
      "a backslash at the end",
      "a=b\\",
      3,
      "Found a backslash at position 3 that escapes nothing, e",
    ],
    [
      "a backslash after an escape",
      "a=\\\\\\",
      4,
      "Found a backslash at position 4 that escapes no",
    ],
  ])("refuses %s: %j", (_, text, position, message) => {
    const error = refusal(() => parseFieldSelector(text));
    expect(error?.position).toBe(position);
    expect(error?.message).toContain(message);
  });

  test("may be of any length up to a limit", () => {
    const longest = "a=".padEnd(maxSelectorLength, "b");
    expect(parseFieldSelector(longest).canonical).toBe(longest);
    const error = refusal(() => parseFieldSelector(`${longest}b`));
    expect(error?.message).toBe("The selector is 65537 characters long, expected at most 65536.");
  });

  test("may have requirements up to a limit", () => {
    const most = Array.from({ length: maxRequirements }, (_, i) => `f${i}=`).join(",");
    expect(parseFieldSelector(most).requirements).toHaveLength(maxRequirements);
    const error = refusal(() => parseFieldSelector(`${most},a=b`));
    expect(error?.message).toContain(`Found one more requirement at position ${most.length + 1},`);
  });
});

describe("Any text at all", () => {
  const scraps = ["a", "b", "=", "!=", "!", ",", "\\", "\\\\", "\\,", "\\=", " ", "\0"];
  const text = fc.oneof(
    fc.string({ unit: fc.constantFrom(...scraps, "😀", "\ud83d", "\ude00"), maxLength: 30 }),
    fc.string({ unit: "binary" }),
  );

  test("is a field selector with a canonical spelling, or refused at a place within it", () => {
    fc.assert(
      fc.property(text, (text) => {
        const error = refusal(() => {
          const { canonical, requirements } = parseFieldSelector(text);
          expect(parseFieldSelector(canonical).canonical).toBe(canonical);
          expect(parseFieldSelector(canonical).requirements).toEqual(requirements);
        });
        if (error === undefined) return;
        expect(error.message.isWellFormed()).toBe(true);
        expect(error.position).toBeGreaterThanOrEqual(0);
        expect(error.position).toBeLessThanOrEqual(text.length);
      }),
      { numRuns: runs(2_000) },
    );
  });

  test.each(["a", "a,", ",", "=", "!", "\\", "\\,", "a=b,", "😀", "\0"])(
    "is dealt with in one go where it repeats %j without end",
    (unit) => {
      for (const start of ["", "a=", "a!="]) {
        const text = (start + unit.repeat(maxSelectorLength)).slice(0, maxSelectorLength);
        const message = refusal(() => parseFieldSelector(text))?.message ?? "";
        expect(message.length).toBeLessThan(1_000);
      }
    },
  );
});
