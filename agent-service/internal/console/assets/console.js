// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// What pages do beside htmx: say whether they are live, and keep what a person has begun when a live part is replaced.
(function () {
  "use strict";

  function say(kind) {
    var line = document.getElementById("connection");
    if (!line || (kind === "back" && !line.classList.contains("lost"))) return;
    if (line.classList.contains("ended")) return; // until the page is left
    ["lost", "back", "ended"].forEach(function (name) { line.classList.toggle(name, kind === name); });
    if (line.textContent !== line.dataset[kind]) line.textContent = line.dataset[kind];
    if (kind !== "ended") return;
    var link = document.createElement("a");
    link.href = document.body.dataset.signIn;
    link.target = "_blank";
    link.textContent = line.dataset.link;
    line.append(" ", link);
  }
  // The line is about the stream of changes and about the last reading of the live part: each may fail alone.
  var failed = {};
  function connected(what, is) {
    failed[what] = !is;
    say(failed.stream || failed.reading ? "lost" : "back");
  }
  document.addEventListener("htmx:sseError", function () { connected("stream", false); });
  document.addEventListener("htmx:sseOpen", function () { connected("stream", true); });

  // How many changes the stream has told of, and how many of them the live part was last asked for after.
  var changes = 0, known = 0;

  // What a person has written into a form that makes something, and would lose with the page.
  function written() {
    return Array.from(document.querySelectorAll("form.fields input:not([type=hidden]), form.fields textarea")).some(function (e) { return e.value !== e.defaultValue; });
  }

  // The service says every 15 seconds that a stream is alive: one that is silent for longer was cut off without an end.
  var silence = 40000;

  // The stream of changes, for the extension. One that cannot be opened, as while a proxy answers in place of the service, is opened again every 2 seconds: the
  // extension would wait twice as long each time. The event "ended" says that the session has ended.
  htmx.createEventSource = function (url) {
    var source, silent, listeners = [], self = { readyState: EventSource.CONNECTING };
    function quiet() {
      clearTimeout(silent);
      silent = 0;
    }
    function again() {
      quiet();
      source.close();
      setTimeout(function () {
        if (self.readyState !== EventSource.CLOSED) open();
      }, 2000);
    }
    function alive() {
      quiet();
      silent = setTimeout(function () {
        if (self.onerror) self.onerror();
        again();
      }, silence);
    }
    function open() {
      source = new EventSource(url, { withCredentials: true });
      alive();
      source.addEventListener("alive", alive);
      source.addEventListener("changed", function () {
        changes++;
        if (silent) alive();
      });
      listeners.forEach(function (l) { source.addEventListener(l.type, l.call); });
      source.addEventListener("ended", function () {
        self.close();
        if (written()) say("ended");
        else location.replace(document.body.dataset.signIn);
      });
      source.onopen = function (event) {
        quiet(); // until the service says that it tells of silence: an older one does not
        if (self.onopen) self.onopen(event);
      };
      source.onerror = function (event) {
        quiet();
        if (self.onerror) self.onerror(event);
        if (source.readyState === EventSource.CLOSED && self.readyState !== EventSource.CLOSED) again();
      };
    }
    self.addEventListener = function (type, call) {
      listeners.push({ type: type, call: call });
      source.addEventListener(type, call);
    };
    self.removeEventListener = function (type, call) {
      listeners = listeners.filter(function (l) { return l.type !== type || l.call !== call; });
      source.removeEventListener(type, call);
    };
    self.close = function () {
      self.readyState = EventSource.CLOSED;
      quiet();
      source.close();
    };
    open();
    return self;
  };

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
  function parsed(html) { return new DOMParser().parseFromString(html, "text/html"); }
  function part(html) {
    var found = parsed(html).getElementById("live");
    return found ? found.innerHTML : null;
  }
  var first = document.getElementById("live"), shown = first && first.innerHTML;
  // Nothing is replaced while a button of the mouse is down on it, because the click would be lost, or while a text of it is selected to be copied, for at most 20 seconds.
  var pressed = false, missed = false, selecting = 0, patience = 20000;
  function selects(live) {
    var selection = document.getSelection();
    return Date.now() < selecting && !selection.isCollapsed && live.contains(selection.anchorNode);
  }
  function catchUp() {
    var live = document.getElementById("live");
    if (missed && live) {
      missed = false;
      htmx.trigger(live, "sse:changed");
    }
  }
  document.addEventListener("selectionchange", function () {
    var selection = document.getSelection();
    if (selection.isCollapsed) { if (selecting && !pressed) catchUp(); selecting = 0; return; }
    selecting = Date.now() + patience;
    setTimeout(catchUp, patience + 100);
  });
  document.addEventListener("pointerdown", function () { pressed = true; });
  ["pointerup", "pointercancel"].forEach(function (name) {
    document.addEventListener(name, function () {
      pressed = false;
      setTimeout(catchUp);
    });
  });

  // What tells elements without an id apart: where a link leads to, what a button is for, what a region is called.
  function likeness(e) { return [e.tagName, e.getAttribute("href"), e.name, e.value, e.getAttribute("aria-label"), e.textContent].join("\n"); }
  function alike(live, as) {
    return Array.from(live.querySelectorAll("a[href], button, summary, [tabindex]")).filter(function (e) { return likeness(e) === as; });
  }
  var focused = null, scrolled = [], narrowed = [];

  document.addEventListener("htmx:beforeSwap", function (event) {
    var live = document.getElementById("live");
    if (!live || event.detail.target !== live) return;
    if (event.detail.xhr.status < 400) connected("reading", true);
    var working = live.hasAttribute("data-working"); // the answer says which machines are done: the next request goes on from it
    if ((pressed || selects(live)) && !working) { missed = true; event.detail.shouldSwap = false; return; }
    var next = part(event.detail.xhr.responseText);
    if (next === null || next === shown && !working) { event.detail.shouldSwap = false; return; }
    shown = next;
    kept = {};
    live.querySelectorAll("input[type=checkbox][id], input[list][id], select[id], details[id]").forEach(function (e) {
      kept[e.id] = e.tagName === "DETAILS" ? e.open : e.type === "checkbox" ? e.checked : e.value;
    });
    scrolled = Array.from(live.querySelectorAll(".scroll")).map(function (e) { return e.scrollLeft; });
    var active = document.activeElement;
    focused = null;
    if (live.contains(active) && !active.id) {
      var as = likeness(active);
      focused = { as: as, at: alike(live, as).indexOf(active) };
    }
  });
  document.addEventListener("htmx:afterSwap", function () {
    Object.keys(kept).forEach(function (id) {
      var e = document.getElementById(id);
      if (!e) return;
      if (e.tagName === "DETAILS") e.open = kept[id];
      else if (e.type === "checkbox") e.checked = kept[id];
      else if (e.tagName === "INPUT") { e.value = kept[id]; if (e.value) narrowed.push(e); }
      else if (Array.from(e.options).some(function (o) { return o.value === kept[id]; })) e.value = kept[id];
    });
    kept = {};
    var live = document.getElementById("live");
    if (live) {
      Array.from(live.querySelectorAll(".scroll")).forEach(function (e, i) { if (scrolled[i]) e.scrollLeft = scrolled[i]; });
      var e = focused && alike(live, focused.as)[focused.at];
      if (e) e.focus({ preventScroll: true });
    }
    focused = null;
    scrolled = [];
    count();
  });
  // A new live part offers what it does for an empty field, and a request of the former field is lost: the new field asks for its text.
  document.addEventListener("htmx:afterSettle", function () {
    narrowed.splice(0).forEach(function (e) { htmx.trigger(e, "kept"); });
  });
  document.addEventListener("DOMContentLoaded", count);

  // An action that is under way goes on with the next machines, once the page or its last part is there.
  function goOn() {
    var live = document.getElementById("live");
    if (live && live.hasAttribute("data-working")) htmx.trigger(live, "again");
  }
  document.addEventListener("DOMContentLoaded", function () { setTimeout(goOn); });
  document.addEventListener("htmx:afterSettle", goOn);

  // A change that comes while an answer is under way goes by the live part that the answer replaces: the new one is asked for again.
  document.addEventListener("htmx:beforeRequest", function (event) {
    if (event.detail.elt.id === "live") known = changes;
  });
  document.addEventListener("htmx:afterSettle", function () {
    var live = document.getElementById("live");
    if (live && live.hasAttribute("hx-get") && changes > known) htmx.trigger(live, "sse:changed");
  });

  // A form is sent once: a second click before the answer would do the same thing twice. After 10 seconds the person means it.
  var sent = 0;
  document.addEventListener("submit", function (event) {
    if (event.target.method !== "post") return;
    if (Date.now() - sent < 10000) event.preventDefault();
    else sent = Date.now();
  });
  window.addEventListener("pageshow", function () { sent = 0; });

  // The service refuses to go on with an action, such as into a cluster that was deleted meanwhile: the page says why, beside how far the action is.
  function stopped(page) {
    var progress = document.getElementById("progress"), reason = page.querySelector(".notice.bad"), before = progress.querySelector(".notice.bad");
    if (!reason || before && before.textContent === reason.textContent) return;
    if (before) before.remove();
    progress.append(reason);
  }

  // An action that the service could not be asked to go on with is gone on with later. A live part that could not be read again is read later, and gives way to the page
  // that says why where there is nothing to read any more.
  ["htmx:sendError", "htmx:responseError", "htmx:timeout"].forEach(function (name) {
    document.addEventListener(name, function (event) {
      var e = event.target, xhr = event.detail.xhr, status = xhr ? xhr.status : 0, refused = status >= 400 && status < 500 && status !== 429;
      if (e.id !== "live") return;
      var page = refused && parsed(xhr.responseText).getElementById("main"); // null for the answer of a proxy
      if (!e.hasAttribute("hx-get")) {
        if (page) stopped(page);
        else if (e.hasAttribute("data-working")) setTimeout(function () { htmx.trigger(e, "again"); }, 2000);
        return;
      }
      if (page) {
        location.replace(e.getAttribute("hx-get"));
        return;
      }
      connected("reading", false);
      setTimeout(function () {
        var live = document.getElementById("live");
        if (live) htmx.trigger(live, "sse:changed");
      }, 2000);
    });
  });
})();
