// Keeps a page up to date. Parts marked data-live are replaced when they have changed, but never one that has the focus:
// a refresh must not take it away. The state is announced (role=status) only when it is another one.
"use strict";
const seconds = Number(document.body.dataset.refresh);
let lost = null;

function replace(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && other.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceChildren(...other.childNodes);
  }
}

function say(fresh) {
  const here = document.getElementById("state"), there = fresh.getElementById("state");
  if (there && there.textContent !== here.textContent) here.replaceChildren(...there.childNodes);
}

function unreachable() {
  lost ??= new Date().toISOString().slice(11, 19);
  const state = document.getElementById("state"), text = `✗ Gateway not reachable since ${lost} UTC; this page is as it was then`;
  if (state.textContent !== text) state.textContent = text;
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(10000) });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.getElementById("state")) throw new Error("no page");
    lost = null;
    say(fresh);
    replace(fresh);
  } catch {
    unreachable();
  }
}

if (seconds > 0) setInterval(refresh, seconds * 1000);
