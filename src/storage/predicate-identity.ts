import type { Predicate } from "./storage.ts";

const numbers = new WeakMap<Predicate, number>();
let counted = 0;

/** Predicates are told apart by which function they are. 0: none. */
export function predicateIdentity(predicate: Predicate | undefined): number {
  if (predicate === undefined) return 0;
  let number = numbers.get(predicate);
  if (number === undefined) {
    number = ++counted;
    numbers.set(predicate, number);
  }
  return number;
}
