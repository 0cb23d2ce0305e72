import { describe, expect, test } from "vitest";
import { parseLabelSelector } from "../../src/selector/parse-label-selector.ts";
import { maxRequirements, maxSelectorLength } from "../../src/selector/selector-error.ts";
import fc, { runs } from "../property.ts";
import { meaning, modelSelector, spelling } from "./label-model.ts";
import { refusal } from "./refusal.ts";

/** The longest valid names. */
const name63 = `A${"-_.".repeat(20)}x9`;
const prefix253 = `${"a-b.".repeat(62)}a-b-c`;

describe("A label selector", () => {
  test.each([
    ["nothing", "", ""],
    ["blanks", " \t\r\n", ""],
    ["equality", "a=b", "a=b"],
    ["equality as in a programming language", "a==b", "a=b"],
    ["inequality", "a!=b", "a!=b"],
    ["a set", "a in (b,c)", "a in (b,c)"],
    ["an excluded set", "a notin (b,c)", "a notin (b,c)"],
    ["a label that is there", "a", "a"],
    ["a label that is not there", "!a", "!a"],
    ["numbers above", "a>7", "a>7"],
    ["numbers below", "a<7", "a<7"],
    ["several requirements", "a=b,c,!d,e in (f,g)", "!d,a=b,c,e in (f,g)"],
    ["requirements in any order, each once", "c,a=b,c,a==b", "a=b,c"],
    ["requirements that exclude each other", "a=b,a=c,!a", "!a,a=b,a=c"],
    ["blanks around everything", " \t!\ra , b\n==  c , d in ( e , f ) ", "!a,b=c,d in (e,f)"],
    ["a set right after its operator", "a in(b,c)", "a in (b,c)"],
    ["values in any order, each once", "a in (c,b,c)", "a in (b,c)"],
    ["a set of one, which is equality", "a in (b)", "a=b"],
    ["an excluded set of one, which is inequality", "a notin (b,b)", "a!=b"],
    ["the empty value", "a=", "a="],
    ["the empty value before a comma", "a= , b!= ", "a=,b!="],
    ["a set of nothing, which is the empty value", "a in ()", "a="],
    ["a set of nothing twice", "a in (,)", "a="],
    ["the empty value first", "a in (,b)", "a in (,b)"],
    ["the empty value last", "a notin (b,)", "a notin (,b)"],
    ["the empty value between", "a in (b,,c)", "a in (,b,c)"],
    ["three commas at the end", "a in (b,,,)", "a in (,b)"],
    ["three commas alone", "a in (,,,)", "a="],
    ["operators as keys", "in,notin=a,!in", "!in,in,notin=a"],
    ["operators as keys of operators", "in in (in,notin)", "in in (in,notin)"],
    ["operators as values", "a=in,b!=notin", "a=in,b!=notin"],
    ["leading zeros of a bound", "a>007,a<00", "a<0,a>7"],
    ["the largest bound", "a<9223372036854775807", "a<9223372036854775807"],
    ["a key with a prefix", "app.kubernetes.io/name=web", "app.kubernetes.io/name=web"],
    ["the longest name, value and prefix", `${prefix253}/${name63}=${name63}`, undefined],
  ])("takes %s: %j", (_, text, canonical) => {
    expect(parseLabelSelector(text).canonical).toBe(canonical ?? text);
  });

  test.each([
    ["a comma first", ",a", 0, 'Found "," at position 0, expected a label key or "!".'],
    ["a comma last", "a, ", 3, 'Found the end at position 3, expected a label key or "!".'],
    ["two commas", "a,,b", 2, 'Found "," at position 2, expected a label key or "!".'],
    ["no key", "=b", 0, 'Found "=" at position 0, expected a label key or "!".'],
    ["no key to be absent", "a,!", 3, "Found the end at position 3, expected a label key."],
    ["a double negation", "!!a", 1, 'Found "!" at position 1, expected a label key.'],
    ["an absent key with a value", "!a=b", 2, 'Found "=" at position 2, expected "," or the end.'],
    ["a value too many", "a=b c", 4, 'Found "c" at position 4, expected "," or the end.'],
    ["two operators", "a==b==c", 4, 'Found "==" at position 4, expected "," or the end.'],
    ["three equals signs", "a===b", 3, 'Found "=" at position 3, expected a label value, '],
    [
      "an unknown operator",
      "a is b",
      2,
      'Found "is" at position 2, expected ",", the end, or one ',
    ],
    ["an operator in capitals", "a IN (b)", 2, 'Found "IN" at position 2, expected ",", the end, '],
    [
      "a parenthesis for an operator",
      "a(b)",
      1,
      'Found "(" at position 1, expected ",", the end, ',
    ],
    ["a set without parentheses", "a in b", 5, 'Found "b" at position 5, expected "(".'],
    ["a set of sets", "a in ((b))", 6, 'Found "(" at position 6, expected a label value, '],
    ["a set without commas", "a in (b c)", 8, 'Found "c" at position 8, expected "," or ")".'],
    ["a set without an end", "a in (b", 7, 'Found the end at position 7, expected "," or ")".'],
    [
      "a set that ends in a comma",
      "a in (b,",
      8,
      "Found the end at position 8, expected a label v",
    ],
    [
      "two commas at the end of a set",
      "a in (b,,)",
      9,
      'Found ")" at position 9, expected a label',
    ],
    [
      "four commas at the end of a set",
      "a in (b,,,,)",
      11,
      'Found ")" at position 11, expected a ',
    ],
    ["equality with a set", "a=(b)", 2, 'Found "(" at position 2, expected a label value, "," or '],
    ["a bound that is no number", "a>b", 2, 'Found "b" at position 2, expected an integer from 0 '],
    ["a bound that is missing", "a<", 2, "Found the end at position 2, expected an integer from 0"],
    [
      "a bound that is not whole",
      "a>1.5",
      2,
      'Found "1.5" at position 2, expected an integer from ',
    ],
    ["a negative bound", "a>-1", 2, 'Found "-1" at position 2, expected an integer from 0 to 9223'],
    [
      "a bound with a plus",
      "a>+1",
      2,
      'Found "+1" at position 2, expected an integer from 0 to 92',
    ],
    [
      "a bound beyond 64 bits",
      "a>9223372036854775808",
      2,
      "expected an integer from 0 to 92233720",
    ],
    [
      "a bound longer than a value",
      `a>${"0".repeat(64)}`,
      2,
      "expected an integer from 0 to 92233",
    ],
    [
      "a key with a bad start",
      "a,-b",
      2,
      'Found "-b" at position 2, expected a label key of 1 to 63',
    ],
    [
      "a key with a bad end",
      "b.=a",
      0,
      'Found "b." at position 0, expected a label key of 1 to 63 ',
    ],
    [
      "a key with a bad character",
      "a||b",
      0,
      'Found "a||b" at position 0, expected a label key of ',
    ],
    [
      "a key of no Latin letters",
      "é=a",
      0,
      'Found "é" at position 0, expected a label key of 1 to ',
    ],
    ["a key too long", `${name63}x`, 0, "expected a label key of 1 to 63 characters"],
    [
      "a prefix without a name",
      "a/=b",
      0,
      'Found "a/" at position 0, expected a label key of 1 to ',
    ],
    [
      "a name without a prefix",
      "/a",
      0,
      'Found "/a" at position 0, expected a label key whose prefi',
    ],
    ["two prefixes", "a/b/c", 0, 'expected a label key of 1 to 63 characters after the "/"'],
    [
      "a prefix in capitals",
      "A.io/a",
      0,
      'Found "A.io/a" at position 0, expected a label key whose ',
    ],
    ["a prefix with an empty label", "a..b/a", 0, "expected a label key whose prefix, before"],
    ["a prefix too long", `${prefix253}d/a`, 0, "expected a label key whose prefix, before"],
    [
      "a value in quotes",
      'a="b"',
      2,
      'Found "\\"b\\"" at position 2, expected a label value of at',
    ],
    [
      "a value with a bad end",
      "a in (b,c-)",
      8,
      'Found "c-" at position 8, expected a label value ',
    ],
    ["a value too long", `a=${name63}x`, 2, "expected a label value of at most 63 characters"],
    [
      "a NUL and more",
      "a=b\0,c",
      2,
      'Found "b\\u0000" at position 2, expected a label value of at',
    ],
    ["blanks of other scripts", "a\u00a0=b", 0, "expected a label key of 1 to 63 characters"],
    ["an astral character before", "a=😀,b", 2, 'Found "😀" at position 2, expected a label value'],
  ])("refuses %s: %j", (_, text, position, message) => {
    const error = refusal(() => parseLabelSelector(text));
    expect(error?.position).toBe(position);
    expect(error?.message).toContain(message);
  });

  test("repeats only the beginning of a long word to its author", () => {
    const error = refusal(() => parseLabelSelector(`a=${"b".repeat(10_000)}`));
    expect(error?.message).toMatch(/^Found "b{80}…" at position 2, expected a label value of at/);
  });

  test("may be of any length up to a limit", () => {
    const longest = "a".padEnd(maxSelectorLength);
    expect(parseLabelSelector(longest).canonical).toBe("a");
    const error = refusal(() => parseLabelSelector(`${longest} `));
    expect(error?.message).toBe("The selector is 65537 characters long, expected at most 65536.");
    expect(error?.position).toBe(maxSelectorLength);
  });

  test("may have requirements up to a limit", () => {
    const most = Array.from({ length: maxRequirements }, (_, i) => `k${i}`).join(",");
    expect(parseLabelSelector(most).requirements).toHaveLength(maxRequirements);
    const error = refusal(() => parseLabelSelector(`${most},a`));
    expect(error?.message).toContain(`Found one more requirement at position ${most.length + 1},`);
  });

  test("has one canonical spelling, whichever way it was written", () => {
    const written = modelSelector.chain((model) => fc.tuple(spelling(model), spelling(model)));
    fc.assert(
      fc.property(written, ([one, other]) => {
        const { canonical } = parseLabelSelector(one);
        expect(parseLabelSelector(other).canonical).toBe(canonical);
        expect(parseLabelSelector(canonical).canonical).toBe(canonical);
      }),
    );
  });

  test("shares its canonical spelling with no other", () => {
    const written = modelSelector.chain((model) => fc.tuple(fc.constant(model), spelling(model)));
    fc.assert(
      fc.property(written, written, ([model, text], [otherModel, otherText]) => {
        const same = parseLabelSelector(text).canonical === parseLabelSelector(otherText).canonical;
        const meant = JSON.stringify(meaning(model)) === JSON.stringify(meaning(otherModel));
        expect(same).toBe(meant);
      }),
    );
  });
});

describe("Any text at all", () => {
  const scraps = ["a", "b/c", "in", "notin", "in (", "1", "=", "==", "!=", "!", ">", "<", "(", ")"];
  const oddities = [",", " ", "\n", "\0", "\\", "-", ".", "/", "é", "😀", "\ud83d", "\ude00"];
  const text = fc.oneof(
    fc.string({ unit: fc.constantFrom(...scraps, ...oddities), maxLength: 30 }),
    fc.string({ unit: "binary" }),
  );

  test("is a label selector with a canonical spelling, or refused at a place within it", () => {
    fc.assert(
      fc.property(text, (text) => {
        const error = refusal(() => {
          const { canonical } = parseLabelSelector(text);
          expect(parseLabelSelector(canonical).canonical).toBe(canonical);
        });
        if (error === undefined) return;
        expect(error.message.isWellFormed()).toBe(true);
        expect(error.position).toBeGreaterThanOrEqual(0);
        expect(error.position).toBeLessThanOrEqual(text.length);
      }),
      { numRuns: runs(2_000) },
    );
  });

  test.each(["a", "a-", "a.", "9", "0", "(", ",", "=", "!", "a,", "a/", "😀", "\0", " "])(
    "is dealt with in one go where it repeats %j without end",
    (unit) => {
      for (const start of ["", "a=", "a>", "a in (", "a in (b"]) {
        const text = (start + unit.repeat(maxSelectorLength)).slice(0, maxSelectorLength);
        const message = refusal(() => parseLabelSelector(text))?.message ?? "";
        expect(message.length).toBeLessThan(1_000);
      }
    },
  );
});
