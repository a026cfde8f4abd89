// Requests to the service that served this page. The token stays in this tab's session storage.

const TOKEN = "spotweave-token";
const WITHIN_MS = 10000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
export const keepToken = (text) => sessionStorage.setItem(TOKEN, text);
export const dropToken = () => sessionStorage.removeItem(TOKEN);

// JSON of a path. Throws Refused with the service's own line, or another error if it does not answer.
export const get = async (path) => (await ask(path)).json();

// Text of a path, and the headers that came with it.
export async function text(path) {
  const answer = await ask(path);
  return { body: await answer.text(), headers: answer.headers };
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch(path, {
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(WITHIN_MS),
    cache: "no-store",
  });
  if (answer.ok) return answer;
  let line = `the service answered ${answer.status}`;
  try {
    line = (await answer.json()).error ?? line;
  } catch {
    // A proxy in between may answer with something else.
  }
  throw new Refused(answer.status, line);
}
