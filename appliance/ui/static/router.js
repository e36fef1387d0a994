// The place in the address: `#/c/CHANNEL/t/TOPIC/m/MESSAGE`, `#/search?q=…`, `#/events?…`.
//
// It is behind the `#`, so that reload, the back button and links work without the server.

const SEGMENTS = { c: "channel", t: "topic", m: "message" };

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const words = path.split("/").filter(Boolean).map(decode);
  const place = { screen: "", query: Object.fromEntries(new URLSearchParams(query || "")) };
  if (SEGMENTS[words[0]]) {
    for (let i = 0; i + 1 < words.length; i += 2) if (SEGMENTS[words[i]]) place[SEGMENTS[words[i]]] = words[i + 1];
    place.screen = place.topic ? "topic" : place.channel ? "channel" : "message";
  } else {
    place.screen = words[0] || "";
  }
  return place;
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export function link({ screen, channel, topic, message, query = {} }) {
  const words = [["c", channel], ["t", topic], ["m", message]].filter(([, id]) => id);
  const path = screen ? screen : words.map(([letter, id]) => `${letter}/${encodeURIComponent(id)}`).join("/");
  const given = Object.entries(query).filter(([, value]) => value);
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export const go = (target) => {
  location.hash = typeof target === "string" ? target : link(target);
};

// Changes the place without an entry in the history, for example while moving through a list.
export function goQuietly(target) {
  history.replaceState(null, "", typeof target === "string" ? target : link(target));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export const here = () => parse(location.hash);
