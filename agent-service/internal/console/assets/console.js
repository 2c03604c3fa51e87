// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// What pages do beside htmx: say whether they are live, and keep what a person has begun when a live part is replaced.
(function () {
  "use strict";

  function say(kind) {
    var line = document.getElementById("connection");
    if (!line || (kind === "back" && !line.classList.contains("lost"))) return;
    line.classList.toggle("lost", kind === "lost");
    line.classList.toggle("back", kind === "back");
    if (line.textContent !== line.dataset[kind]) line.textContent = line.dataset[kind];
  }
  document.addEventListener("htmx:sseError", function () { say("lost"); });
  document.addEventListener("htmx:sseOpen", function () { say("back"); });

  // The page after a sign-in leads on, and leaves no code of the issuer in the history.
  var follow = document.querySelector("a[data-follow]");
  if (follow) location.replace(follow.href);

  function boxes() { return Array.from(document.querySelectorAll("form[data-select] input[name=host]")); }

  function count() {
    var all = document.getElementById("all"), output = document.getElementById("selected"), list = boxes();
    if (!all || !output) return;
    var n = list.filter(function (b) { return b.checked; }).length;
    all.checked = n > 0 && n === list.length;
    all.indeterminate = n > 0 && n < list.length;
    output.textContent = output.dataset.text.replace("%d", n);
  }
  document.addEventListener("change", function (event) {
    if (event.target.id === "all") boxes().forEach(function (b) { b.checked = event.target.checked; });
    count();
  });

  // A live part is replaced only where it differs, and keeps what is selected, chosen and open.
  var kept = {};
  function part(html) {
    var found = new DOMParser().parseFromString(html, "text/html").getElementById("live");
    return found ? found.innerHTML : null;
  }
  var first = document.getElementById("live"), shown = first && first.innerHTML;
  // While a button of the mouse is down, nothing is replaced below it: the click would be lost.
  var pressed = false, missed = false;
  document.addEventListener("pointerdown", function () { pressed = true; });
  ["pointerup", "pointercancel"].forEach(function (name) {
    document.addEventListener(name, function () {
      pressed = false;
      setTimeout(function () {
        var live = document.getElementById("live");
        if (missed && live) htmx.trigger(live, "sse:changed");
        missed = false;
      });
    });
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    var live = document.getElementById("live");
    if (!live || event.detail.target !== live) return;
    if (pressed) { missed = true; event.detail.shouldSwap = false; return; }
    var next = part(event.detail.xhr.responseText);
    if (next === null || next === shown) { event.detail.shouldSwap = false; return; }
    shown = next;
    kept = {};
    live.querySelectorAll("input[type=checkbox][id], select[id], details[id]").forEach(function (e) {
      kept[e.id] = e.tagName === "DETAILS" ? e.open : e.type === "checkbox" ? e.checked : e.value;
    });
  });
  document.addEventListener("htmx:afterSwap", function () {
    Object.keys(kept).forEach(function (id) {
      var e = document.getElementById(id);
      if (!e) return;
      if (e.tagName === "DETAILS") e.open = kept[id];
      else if (e.type === "checkbox") e.checked = kept[id];
      else if (Array.from(e.options).some(function (o) { return o.value === kept[id]; })) e.value = kept[id];
    });
    count();
  });
  document.addEventListener("DOMContentLoaded", count);
})();
