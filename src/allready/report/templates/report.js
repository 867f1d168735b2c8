"use strict";
(function () {
  var root = document.documentElement;
  function each(selector, act) { Array.prototype.forEach.call(document.querySelectorAll(selector), act); }
  function swap(node) {
    var other = node.getAttribute("data-other"), inDrawing = node.tagName.toLowerCase() === "title";
    node.setAttribute("data-other", inDrawing ? node.textContent : node.getAttribute("title"));
    if (inDrawing) { node.textContent = other; } else { node.setAttribute("title", other); }
  }
  function speak(language) {
    if (language !== root.getAttribute("data-lang")) { each("[data-other]", swap); }
    root.setAttribute("data-lang", language);
    root.setAttribute("lang", language === "zh" ? "zh-CN" : "en");
    each("[data-speak]", function (b) { b.hidden = b.getAttribute("data-speak") === language; });
  }
  each("[data-speak]", function (b) {
    b.addEventListener("click", function () { speak(b.getAttribute("data-speak")); });
  });
  speak(root.getAttribute("data-lang"));
  function done(button) {
    button.setAttribute("data-done", "1");
    each(".copy", function (b) {
      b.querySelector(".before").hidden = b === button;
      b.querySelector(".after").hidden = b !== button;
    });
  }
  function byHand(node, button) {
    var range = document.createRange();
    range.selectNodeContents(node);
    var selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    if (document.execCommand("copy")) { done(button); }
  }
  each(".copy", function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var box = button.parentNode.firstElementChild;
      var text = box.innerText.trim();
      if (navigator.clipboard && window.isSecureContext) {
        navigator.clipboard.writeText(text).then(function () { done(button); }, function () { byHand(box, button); });
      } else { byHand(box, button); }
    });
  });
  each(".filter", function (bar) {
    bar.hidden = false;
    var buttons = bar.querySelectorAll("[data-only]");
    Array.prototype.forEach.call(buttons, function (button) {
      button.addEventListener("click", function () {
        var role = button.getAttribute("data-only");
        Array.prototype.forEach.call(buttons, function (b) { b.setAttribute("aria-pressed", String(b === button)); });
        each("tr[data-role]", function (row) { row.hidden = role !== "" && row.getAttribute("data-role") !== role; });
      });
    });
  });
  function openTarget() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var node = target; node; node = node.parentElement) { if (node.tagName === "DETAILS") { node.open = true; } }
    if (target) { target.scrollIntoView(); }
  }
  each(".scroll.wide", function (box) {  // where it does not fit, begin at the fault, and keep the names in sight
    var onset = box.querySelector("line.onset"), space = box.clientWidth, svg = box.querySelector("svg");
    box.addEventListener("scroll", function () {
      var shift = box.scrollLeft * svg.viewBox.baseVal.width / svg.clientWidth;
      Array.prototype.forEach.call(svg.querySelectorAll("text[class^='l-']"), function (name) {
        name.setAttribute("transform", "translate(" + shift + " 0)");
      });
    });
    if (onset && box.scrollWidth > space) {
      box.scrollLeft += onset.getBoundingClientRect().left - box.getBoundingClientRect().left - 0.4 * space;
    }
  });
  window.addEventListener("hashchange", openTarget);
  openTarget();
  var opened = [];
  window.addEventListener("beforeprint", function () {
    each("details:not([open])", function (d) { d.open = true; opened.push(d); });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (d) { d.open = false; }); opened = []; });
})();
