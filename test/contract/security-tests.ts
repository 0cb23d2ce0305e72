/** The tests of the threats of docs/security.md: titles by the ids that the page has in comments. */
export const securityTests: Readonly<Record<string, string>> = {
  "threat-1": "%s gets no connection where one is required",
  "threat-1b": "%s is UNAUTHENTICATED where one is requested",
  "threat-2": "%s is UNAUTHENTICATED where that is the name",
  "threat-2b": "undefined for two SPIFFE IDs",
  "threat-3": "ends 1,000 streams of one credential within a second, however busy the process is",
  "threat-3b": "ends its streams and refuses its calls when it expires",
  "threat-4": "A %s whose request arrives after its token %s has no effect",
  "threat-5": "signed with the public key as HS256 secret",
  "threat-5b": "without a signature (none)",
  "threat-5c": "for another audience",
  "threat-6": "by a credential %s, which is wrong, not absent",
  "threat-6b": "by the certificate that a trusted proxy forwards, also between spaces",
  "threat-7": "the streams and connections of its certificates end, and those of others continue",
  "threat-7b": "a TLS session of before can't be resumed",
  "threat-7c": "a connection whose handshake began before ends at once",
  "threat-8":
    "is refused once the issuer's keys are rotated, and a token with the new key is accepted",
  "threat-9": "are requested again for an unknown kid, once for all, and at most every 10 s",
  "threat-10": "calls with a new key wait, and no other call waits for them",
  "threat-11": "Of tokens that have to be verified, 16 are at once, and connections take turns",
  "threat-11b":
    "their tokens are bounded in bytes per connection: it loses its own, and others continue",
  "threat-11c": "their requests are bounded in bytes per connection",
  "threat-12": "of a trusted proxy forwards that of another client, and of another proxy does not",
  "threat-12b": "several elements: the last one",
  "threat-13":
    "identities end with the proxy's certificate, whose expiry their streams do not outlive",
  "threat-13b":
    "calls that have begun on its connections have no effect, whatever their identity is",
  "threat-14": "a caller without a certificate is anonymous, and has not the rights of the proxy",
  "threat-15": "can't be reached before it has its permissions",
  "threat-15b": "is refused where another process serves, and that one continues",
  "threat-16": "reaches its main process over a socket that other users can't reach",
  "threat-17":
    "applies the policy in each worker, also a new one, and in a worker that replaces another",
  "threat-18": "has only the status of the probes for a request with %s",
  "threat-19": "needs the token, as bearer or as the password of Basic",
  "threat-20": "shows texts of clients as text",
  "threat-20b": "escapes what clients choose",
  "threat-21": "takes linear time however it is made",
  "threat-22": "are found by the token, and not by its digest",
  "threat-23": "Neither a token nor a part of it reaches the log, an error or the audit log",
  "threat-23b":
    "is refused with the number of each bad line, and without a token that was written by mistake",
  "threat-24":
    "that is refused for a passing reason is tried again, less and less often, and logged once",
  "threat-25":
    "A token file that is written in place revokes what it lacks at the end, and nothing while it is empty or incomplete",
  "threat-25b":
    "is applied once two checks in a row have read the same, so not while it is being written",
  "threat-25c":
    "and refused if they are broken, with a log line and a metric, while the ones before stay",
  "threat-26": "yields a byte from outside of its rights, whatever its fields and page tokens",
  "threat-27":
    "names verb, resource and scope, and is the same whether or not anything exists there",
  "threat-28":
    "A %s that waits for its client has no effect once its right is lost, and is audited as denied",
  "threat-29":
    "ends exactly those of 1,000 streams that lose their right, with their resume points",
  "threat-30": "decide which resources it serves",
  "threat-30b": "when lost, end its streams and its cached reads",
  "threat-31": "gives an identity without a credential only what is bound to its name",
  "threat-32":
    "that takes nothing keeps the lines of others while one caller floods it, and says later what is missing",
  "threat-32b": "has calls whose credential is refused",
  "threat-32c":
    "that takes nothing has a bounded number of lines in memory, and counts those that it drops",
  "threat-33": "the %s of another are begun as often as its own, in turns",
  "threat-33b": "in another process, each call of another waits for a bounded number of its own",
  "threat-33c": "are shared by caller: one with twenty connections delays another by one quantum",
  "threat-34":
    "While one identity floods the connection of a proxy, the %s of another on it are begun in turns",
  "threat-35":
    "one may cancel calls as it likes: its own are refused then, and the connection stays",
  "threat-35b": "one may replace all of the calls that the connection may have: it stays open",
  "threat-36": "none of them makes a connection count for it, or closes it",
  "threat-37": "are begun in rotation by caller, however many connections each has",
  "threat-38":
    "closes no connection of other hosts for those of the host with the most, and counts them",
  "threat-39": "above the rate of its client is not recorded, neither here nor at etcd",
  "threat-39b": "a call of a caller without a valid credential is not exported",
  "threat-40":
    "of a caller with many connections are ended for another caller, down to equal shares",
  "threat-41": "its host, if it is anonymous: others have their own share",
  "threat-42":
    "Of callers that have nothing a bounded number is remembered, and those in use are kept",
  "threat-43": "At a %s no request of a limited caller reads or writes a key outside of its rights",
  "threat-43b": "are not read of what has %s",
  "threat-43c": "Methods whose requests are not checked are for callers with every right",
  "threat-44":
    "A right that is withdrawn through here is lost at once, and one withdrawn elsewhere soon",
  "threat-44b": "A permission is of one credential and one range",
  "threat-45":
    "A put of a limited caller may name a lease all of whose objects it may put and delete",
  "threat-45b": "A lease with %s can't be used",
};
