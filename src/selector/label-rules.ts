/*
 * Kubernetes' rules for the key and the value of a label (IsQualifiedName and IsValidLabelValue in
 * k8s.io/apimachinery/pkg/util/validation). Lengths are checked before patterns, so that no pattern runs on a long
 * text.
 */

const maxNameLength = 63;
const maxPrefixLength = 253;

const name = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;
const dnsSubdomain = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;

const nameRule =
  'letters, digits, "-", "_" and ".", with a letter or a digit at the start and at the end';

/** Returns what a key must be, as the end of a sentence; undefined if `key` is valid. */
export function ruleBrokenByKey(key: string): string | undefined {
  const slash = key.indexOf("/");
  if (slash !== -1) {
    const prefix = key.slice(0, slash);
    if (prefix.length > maxPrefixLength || !dnsSubdomain.test(prefix)) {
      return (
        `a label key whose prefix, before "/", is a DNS subdomain: at most ${maxPrefixLength} ` +
        'lower case letters, digits, "-" and ".", with a letter or a digit at the start and at the ' +
        'end and on both sides of each "."'
      );
    }
  }
  if (isName(key.slice(slash + 1))) return undefined;
  const where = slash === -1 ? "" : ' after the "/"';
  return `a label key of 1 to ${maxNameLength} characters${where}: ${nameRule}`;
}

/** Returns what a value must be, as the end of a sentence; undefined if `value` is valid. */
export function ruleBrokenByValue(value: string): string | undefined {
  if (value === "" || isName(value)) return undefined;
  return `a label value of at most ${maxNameLength} characters: ${nameRule}`;
}

function isName(text: string): boolean {
  return text.length <= maxNameLength && name.test(text);
}
