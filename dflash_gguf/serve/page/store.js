// What this browser keeps: conversations, settings and the theme in localStorage; the key until the tab is closed.

const CONVERSATIONS = "dflash-gguf.conversations", SETTINGS = "dflash-gguf.settings";
const THEME = "dflash-gguf.theme", KEY = "dflash-gguf.key";
const MOST = 100; // conversations; the oldest go

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch { // switched off, or not ours
    return otherwise;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch { // full or switched off: the page works without
    return false;
  }
}

const isConversation = (found) => typeof found?.id === "string" && Array.isArray(found.messages);

export class Conversations {
  // all: newest first. Each: id, messages of {role, content, reasoning, figures, wrong, stopped}.
  constructor() {
    const found = read(CONVERSATIONS, []);
    this.all = Array.isArray(found) ? found.filter(isConversation) : [];
    this.current = this.all[0] ?? this.begin();
  }

  begin() {
    this.all = this.all.filter((each) => each.messages.length);
    this.current = { id: String(Date.now()) + Math.random().toString(36).slice(2), messages: [] };
    this.all.unshift(this.current);
    return this.current;
  }

  pick(id) {
    this.current = this.all.find((each) => each.id === id) ?? this.current;
  }

  drop(id) {
    this.all = this.all.filter((each) => each.id !== id);
    if (this.current.id === id) this.current = this.all[0] ?? this.begin();
    this.save();
  }

  // Returns whether it could be kept.
  save() {
    return write(CONVERSATIONS, this.all.filter((each) => each.messages.length).slice(0, MOST));
  }
}

export function title(conversation) {
  const asked = conversation.messages.find((message) => message.role === "user");
  return asked ? asked.content.trim().split("\n")[0].slice(0, 60) : "New conversation";
}

export const settings = () => read(SETTINGS, {});
export const keepSettings = (value) => write(SETTINGS, value);
export const theme = () => read(THEME, null);
export const keepTheme = (value) => write(THEME, value);

export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function keepKey(value) {
  try {
    sessionStorage.setItem(KEY, value);
  } catch { /* asked for again then */ }
}
