// The server: which model it has, and answers as they come.

export class Refused extends Error {
  // status: of HTTP, 0 if the server could not be reached; told: what the server said, if it did
  constructor(status, told) {
    super(told || `status ${status}`);
    this.status = status;
    this.told = told;
  }
}

// What went wrong, in words for the person in front of the page.
export function inWords(error) {
  if (!(error instanceof Refused)) return `Something is wrong with this page: ${error.message}`;
  switch (error.status) {
    case 0: return "The server cannot be reached, or went away. Is it still running?";
    case 401: return "The server wants an API key: enter it in Settings.";
    case 413: return "The message is too large for this server.";
    case 429: return "The server is busy: too many answers are waiting. Try again in a moment.";
    case 503: return `The server is not ready (${error.message}). Try again in a moment.`;
    default: return `The server refused: ${error.message}`;
  }
}

async function asked(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0);
  }
  if (response.ok) return response;
  let told;
  try {
    told = (await response.json()).error?.message;
  } catch { /* no JSON: the status says enough */ }
  throw new Refused(response.status, told);
}

export async function modelName(key) {
  const models = await (await asked("v1/models", key)).json();
  return models.data[0]?.id ?? "a model without a name";
}

// Yields the pieces of an answer: objects as of OpenAI's chat.completion.chunk.
export async function* answer(body, key, signal) {
  const response = await asked("v1/chat/completions", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, timings_per_token: true }),
    signal,
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const piece = JSON.parse(data);
    if (piece.error) throw new Refused(piece.error.code === "stopping" ? 503 : 500, piece.error.message);
    yield piece;
  }
  throw new Refused(0); // it ended before it said so
}

// Yields the data of server-sent events; comments, with which servers show that they live, are passed over.
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refused(0);
      }
      if (part.done) return;
      held += part.value;
      const whole = held.split(/\r?\n\r?\n/);
      held = whole.pop();
      for (const event of whole) {
        const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
