// The page: a conversation, its answers as they come, and what a person does with them.

import { answer, inWords, modelName } from "./api.js";
import { Conversations, keepSettings, keepTheme, keepKey, key, settings, theme, title } from "./store.js";
import { make } from "./markdown.js";
import { Drawn, figuresOf } from "./view.js";

const at = (id) => document.getElementById(id);
const messages = at("messages"), question = at("question"), dialog = at("settings");
const kept = new Conversations();
let going = null; // the AbortController of the answer that is being written

const actions = {
  edit(message, text) {
    if (going) return;
    const place = kept.current.messages.indexOf(message);
    kept.current.messages.length = place;
    showConversation();
    ask(text);
  },
  regenerate(message) {
    if (going) return;
    const place = kept.current.messages.indexOf(message);
    kept.current.messages.length = place;
    showConversation();
    writeAnswer();
  },
};

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text ?? "";
}

// For those who hear the page: beginnings and ends, not every word.
function announce(text) {
  at("said").textContent = text;
}

function showConversation() {
  at("empty").hidden = kept.current.messages.length > 0;
  messages.replaceChildren(at("empty"), ...kept.current.messages.map((message) => new Drawn(message, actions).node));
  messages.scrollTop = messages.scrollHeight;
  at("figures").textContent = "";
  showList();
}

function showList() {
  at("list").replaceChildren(...kept.all.filter((each) => each.messages.length).map((each) => {
    const pick = make("button", { type: "button", className: "pick", textContent: title(each) });
    const drop = make("button", { type: "button", className: "drop", textContent: "✕" });
    drop.setAttribute("aria-label", `Delete ${title(each)}`);
    pick.addEventListener("click", () => change(() => kept.pick(each.id)));
    drop.addEventListener("click", () => change(() => kept.drop(each.id)));
    const item = make("li", {}, pick, drop);
    item.toggleAttribute("data-current", each === kept.current);
    if (each === kept.current) pick.setAttribute("aria-current", "true");
    return item;
  }));
}

function change(act) {
  going?.abort();
  act();
  notice();
  showConversation();
  list(false);
  question.focus();
}

function list(open) {
  document.body.classList.toggle("listing", open);
  at("menu").setAttribute("aria-expanded", String(open));
}

function add(message) {
  kept.current.messages.push(message);
  const drawn = new Drawn(message, actions);
  at("empty").hidden = true;
  messages.append(drawn.node);
  messages.scrollTop = messages.scrollHeight;
  return drawn;
}

function ask(text) {
  add({ role: "user", content: text });
  writeAnswer();
}

// What is sent: the conversation, and the settings that differ from the server's.
function body(conversation) {
  const chosen = settings();
  const said = conversation.messages
    .filter((message) => message.role === "user" || message.content || message.reasoning)
    .map(({ role, content, reasoning }) => ({ role, content, ...(reasoning && { reasoning_content: reasoning }) }));
  const made = { messages: chosen.system?.trim() ? [{ role: "system", content: chosen.system }, ...said] : said };
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    if (typeof chosen[name] === "number") made[name] = chosen[name];
  }
  if (chosen.thinking) made.chat_template_kwargs = { enable_thinking: chosen.thinking === "on" };
  return made;
}

async function writeAnswer() {
  const conversation = kept.current, asked = body(conversation);
  const message = { role: "assistant", content: "", reasoning: "" };
  const drawn = add(message), control = new AbortController();
  const drawNow = () => {
    const follows = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
    drawn.draw({ going: going === control });
    if (conversation === kept.current) at("figures").textContent = figuresOf(message.timings);
    if (follows) messages.scrollTop = messages.scrollHeight;
  };
  const draw = soon(drawNow);
  begin(control);
  try {
    for await (const piece of answer(asked, key(), control.signal)) {
      const choice = piece.choices[0], delta = choice?.delta ?? {};
      message.reasoning += delta.reasoning_content ?? "";
      message.content += delta.content ?? "";
      message.timings = piece.timings ?? message.timings;
      if (choice?.finish_reason === "length") message.stopped = "Cut: the most tokens, or the end of the context, were reached.";
      draw();
    }
    announce("The answer is complete.");
  } catch (error) {
    if (error.name === "AbortError") {
      message.stopped = "Stopped.";
      announce("Stopped.");
    } else {
      message.wrong = inWords(error);
      announce(message.wrong);
      if (error.status === 401) openSettings();
    }
  }
  end(control);
  drawNow();
  if (!kept.save()) notice("This browser keeps no more: the conversation is lost when the page is closed.");
  showList();
}

// Calls of it within a frame become one: an answer may come faster than a screen shows.
function soon(act) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; act(); });
  };
}

function begin(control) {
  going = control;
  notice();
  at("send").hidden = true;
  at("stop").hidden = false;
  announce("The answer is being written.");
  showList();
}

function end(control) {
  if (going !== control) return;
  going = null;
  const focused = document.activeElement === at("stop");
  at("send").hidden = false;
  at("stop").hidden = true;
  if (focused) question.focus();
}

function openSettings() {
  const form = dialog.querySelector("form"), chosen = settings();
  for (const field of form.elements) if (field.name) field.value = field.name === "key" ? key() : chosen[field.name] ?? "";
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
}

function takeSettings() {
  if (dialog.returnValue !== "save") return; // left by Escape
  const chosen = {};
  for (const field of dialog.querySelector("form").elements) {
    if (!field.name || field.name === "key" || field.value === "" || !field.validity.valid) continue;
    chosen[field.name] = field.type === "number" ? field.valueAsNumber : field.value;
  }
  keepSettings(chosen);
  keepKey(dialog.querySelector("[name=key]").value.trim());
  showModel();
}

async function showModel() {
  try {
    at("model").textContent = await modelName(key());
    notice();
  } catch (error) {
    notice(inWords(error));
  }
}

function showTheme(value) {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
}

function fit() {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + 2}px`;
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value;
  if (going || !text.trim()) return;
  question.value = "";
  fit();
  ask(text);
});
question.addEventListener("input", fit);
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("ask").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || dialog.open) return;
  going?.abort();
  list(false);
});
at("stop").addEventListener("click", () => going?.abort());
at("new").addEventListener("click", () => change(() => kept.begin()));
at("menu").addEventListener("click", () => list(!document.body.classList.contains("listing")));
at("open-settings").addEventListener("click", openSettings);
dialog.addEventListener("close", takeSettings);
at("theme").addEventListener("click", () => {
  const shown = theme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  keepTheme(shown === "dark" ? "light" : "dark");
  showTheme(theme());
});

showTheme(theme());
showConversation();
showModel();
